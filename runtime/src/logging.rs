//! What longarm says beside the errors of calls: events of the `tracing` crates. Its threads have nobody to return an error to.
//!
//! Where they go is the program's business, so [`init`](crate::init) sets nothing up.

use crate::config::Config;

/// Shows longarm's events on stderr, as `LONGARM_LOG` asks: warnings if it asks for nothing. For programs that set up no `tracing`
/// subscriber of their own, which would show them too; best called before [`init`](crate::init). False: there is a subscriber
/// already, and it stays.
///
/// C programs have it called for them.
///
/// ```
/// longarm::log_to_stderr(&longarm::config::Config::from_environment()?);
/// let world = longarm::init()?;
/// # world.finalize()?;
/// # Ok::<(), longarm::Error>(())
/// ```
pub fn log_to_stderr(config: &Config) -> bool {
    let filter = config.log.as_deref().unwrap_or("warn");
    let filter = tracing_subscriber::EnvFilter::try_new(filter).unwrap_or_else(|_| "warn".into());
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time();
    lines.try_init().is_ok()
}
