use super::*;

fn launch_with(variables: &[(&str, &str)], change: impl Fn(&mut Config)) -> Launch {
    let value = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let mut config = Config::default();
    change(&mut config);
    look(&value, &config)
}

#[test]
fn a_process_of_which_nothing_is_said_is_alone() {
    let launch = launch_with(&[], |_| ());
    assert_eq!((launch.taken, launch.promised_by), (Some(ALONE), None));
    assert!(launch.ways.iter().all(|(_, outcome)| *outcome == Outcome::NotSeen));
    assert!(launch.to_string().contains("nothing that speaks of other ranks"), "{launch}");
}

#[test]
fn the_launcher_goes_before_what_else_could_be_taken() {
    let variables = [("LONGARM_CONTROL_FD", "3"), ("LONGARM_RANK", "0"), ("LONGARM_SIZE", "2")];
    let launch = launch_with(&variables, |config| {
        config.root = "host:1".to_owned();
        config.secret_file = "file".to_owned();
    });
    assert_eq!(launch.taken, Some("longarm run"));
    assert!(launch.ways.iter().any(|(_, outcome)| *outcome == Outcome::NotNeeded), "{launch}");
}

#[test]
fn others_to_whom_no_way_leads_are_told_of_with_what_was_seen() {
    let launch = launch_with(&[("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "4")], |_| ());
    assert_eq!((launch.taken, launch.promised_by), (None, Some("SLURM_STEP_NUM_TASKS")));
    assert!(launch.to_string().contains("SLURM_STEP_NUM_TASKS=4"), "{launch}");
    let launch = launch_with(&[("LONGARM_RANK", "1"), ("LONGARM_SIZE", "4")], |_| ());
    assert_eq!((launch.taken, launch.promised_by), (None, Some("LONGARM_SIZE")));
    assert!(launch.to_string().contains("LONGARM_ROOT is not set"), "{launch}");
}

#[test]
fn who_wants_to_be_alone_is_but_for_our_own_launcher() {
    let variables = [("PMI_RANK", "1"), ("PMI_SIZE", "4"), ("LONGARM_RANK", "1"), ("LONGARM_SIZE", "4")];
    let launch = launch_with(&variables, |config| config.alone = true);
    assert_eq!((launch.taken, launch.promised_by), (Some(ALONE), None));
    let launched = [("LONGARM_CONTROL_FD", "3")];
    assert_eq!(launch_with(&launched, |config| config.alone = true).taken, Some("longarm run"));
}
