//! The cellar, as the settings want it: where what is away goes when the arena is full.

use anyhow::Context;
use mover::Arena;
use rota_daemon::config::Config;
use std::path::Path;
use wire::quantity::Bytes;

/// Opens it, or goes on with that of an earlier worker. A folder that is named and will not do is
/// an error: whoever names one counts on it.
pub(crate) fn open(arena: &Arena, config: &Config) -> anyhow::Result<()> {
    let wanted = config.cellar.as_deref().map(|folder| -> anyhow::Result<cellar::Settings> {
        let limit_bytes = match config.cellar_limit {
            Some(limit) => limit.0,
            None => half_of_free(folder).with_context(|| format!("cellar = {}", folder.display()))?,
        };
        Ok(cellar::Settings::new(folder, limit_bytes))
    });
    arena.open_cellar(wanted.transpose()?).context("there is no cellar")?;
    // Whatever goes to the cellar or comes from there has to be in the arena first, as a whole.
    let least_bytes = 2 * wire::HANDLE_BYTES_MAX;
    if arena.has_cellar() && arena.size_bytes() < least_bytes {
        let (size, least) = (Bytes(arena.size_bytes()), Bytes(least_bytes));
        tracing::warn!(
            "an arena of {size} may be too small for large allocations: {least} are enough for all"
        );
    }
    Ok(())
}

fn half_of_free(folder: &Path) -> std::io::Result<u64> {
    let about = rustix::fs::statvfs(folder)?;
    Ok(about.f_bavail.saturating_mul(about.f_frsize) / 2)
}
