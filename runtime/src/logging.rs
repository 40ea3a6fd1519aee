//! What longarm says beside the errors of calls: events of the `tracing` crates. Its threads have nobody to return an error to.
//!
//! Where they go is the program's business, so [`init`](crate::init) sets nothing up.

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, registry};

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
    // Not the filter of the same crate that reads regular expressions, which take 0.3 MB of every C library.
    let asked = config.log.as_deref().and_then(|filter| filter.parse().ok());
    let filter = asked.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
    let lines = fmt::layer().with_writer(std::io::stderr).without_time().with_filter(filter);
    registry().with(lines).try_init().is_ok()
}
