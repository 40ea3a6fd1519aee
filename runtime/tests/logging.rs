//! A program's own `tracing` subscriber, set up when longarm runs already.
#![forbid(unsafe_code)]

use longarm::config::Config;

#[test]
fn a_program_may_set_up_its_own_subscriber_after_init_whatever_is_to_be_logged() {
    let mut config = Config::default();
    config.log = Some("debug".into());
    let world = longarm::init_with(config.clone()).expect("a world of one");
    tracing_subscriber::fmt().with_writer(std::io::stderr).try_init().expect("longarm has set up none");
    assert!(!longarm::log_to_stderr(&config), "the program's own one stays");
    world.finalize().expect("nobody has died");
}
