//! Does what it is told on a GPU, a line at a time; see `programs::puppet`.

fn main() -> anyhow::Result<()> {
    Ok(programs::puppet::run(std::io::stdin().lock(), std::io::stdout())?)
}
