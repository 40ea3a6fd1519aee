use super::*;

const CLUSTER: Machine = Machine::cluster();

#[test]
fn limits_are_those_of_the_runtime() {
    let config = longarm::config::Config::default();
    let (proof, report) = (job::PROOF.as_millis() as u64, job::REPORT.as_millis() as u64);
    assert_eq!((config.handshake_timeout_ms, config.report_ms), (proof, report));
    assert_eq!(
        (config.half_open_max, config.meet_timeout_s),
        (job::HALF_OPEN_MAX as u64, job::MEET_NS / 1_000_000_000)
    );
}

#[test]
fn ranks_come_in_and_leave_by_relays_and_by_themselves() {
    for (ranks, nodes) in [(1, 1), (2, 1), (2, 2), (7, 3), (200, 10)] {
        for by_relays in [false, true] {
            let admitted = admit(Coming { ranks, nodes, by_relays }, CLUSTER).unwrap();
            assert!(admitted.met_us > 0.0 && admitted.started_us >= admitted.met_us && admitted.left_us > 0.0);
            assert_eq!(admitted.connections, if by_relays { nodes } else { ranks }, "{ranks} ranks on {nodes} nodes");
        }
    }
}

/// Jobs with faults, until each kind has been there.
fn with_faults(by_relays: bool, seeds: u64) -> Outcome {
    let mut sum = Outcome::default();
    let (mut well, mut lost) = (0, 0);
    for seed in 0..seeds {
        let ranks = 1 + (seed % 40) as u32;
        let nodes = 1 + (seed / 7 % u64::from(ranks)) as u32;
        let coming = Coming { ranks, nodes, by_relays };
        let outcome =
            admit_with_faults(coming, seed).unwrap_or_else(|wrong| panic!("seed {seed}, {coming:?}: {wrong}"));
        well += u64::from(outcome.are_well);
        lost += u64::from(outcome.lost.is_some());
        sum.tries_again += outcome.tries_again;
        sum.strangers += outcome.strangers;
        sum.broken += outcome.broken;
        sum.pauses += outcome.pauses;
    }
    assert!(well > seeds / 2 && lost > seeds / 6, "{well} and {lost} of {seeds}");
    sum
}

#[test]
fn whatever_goes_wrong_ranks_come_together_or_are_told_why_not() {
    for by_relays in [false, true] {
        let sum = with_faults(by_relays, 3000);
        assert!(sum.tries_again > 0 && sum.strangers > 0 && sum.broken > 0 && sum.pauses > 0, "{sum:?}");
    }
}
