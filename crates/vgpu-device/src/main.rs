//! `vgpud DIR`: the virtual device of one directory. Started by the first program that needs it; ends by itself.

use std::fs::OpenOptions;
use std::sync::Mutex;

use anyhow::Context as _;
use vgpu_device::server::Server;
use vgpu_messages::{Directory, Spec};

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(path), None) = (arguments.next(), arguments.next()) else {
        anyhow::bail!(
            "usage: vgpud DIR, where DIR is the directory of a virtual machine (see vgpu.toml there)"
        );
    };
    let directory = Directory::new(path);
    let log = OpenOptions::new().create(true).append(true).open(directory.log());
    let log = log.with_context(|| format!("cannot write to {}", directory.log().display()))?;
    tracing_subscriber::fmt().with_ansi(false).with_writer(Mutex::new(log)).init();
    // Nobody reads what it prints.
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!("{panic}\n{}", std::backtrace::Backtrace::force_capture());
    }));
    if let Err(error) = serve(&directory) {
        tracing::error!("{error:#}");
        return Err(error);
    }
    Ok(())
}

fn serve(directory: &Directory) -> anyhow::Result<()> {
    let spec = Spec::load(directory, |name| std::env::var(name).ok())?;
    // SAFETY: this only makes sleeps more exact. It fails where it is not known, which does no harm.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64) };
    tracing::info!("{} GPU(s) with {} MiB each", spec.gpus, spec.memory.0 >> 20);
    let server = Server::new(directory, spec)?;
    server.run()?;
    tracing::info!("nobody is left");
    Ok(())
}
