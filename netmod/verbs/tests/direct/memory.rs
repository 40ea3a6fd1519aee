//! How much memory of windows is registered.

use longarm_netmod::{Netmod, Reach, Wish};
use longarm_proto::{Generation, WindowId, WindowRef};
use longarm_verbs::{OnDemand, VerbsOptions};

use crate::{PART, Pair, WINDOW_BYTES, step};

/// Drives both sides until it is known whether the part can be reached.
fn decided(pair: &mut Pair, part: &WindowRef) -> Reach {
    loop {
        match pair.caller.direct().map(|access| access.reach(part, Wish::PutLent)) {
            None | Some(Reach::Asked) => {
                step(&mut *pair.caller);
                step(&mut *pair.called);
            }
            Some(decided) => return decided,
        }
    }
}

#[test]
fn windows_that_take_too_much_memory_together_are_served_until_others_go() {
    let together = WINDOW_BYTES as u64 * 2;
    let little = |options: &mut VerbsOptions| {
        options.pinned_together_bytes_max = together;
        options.on_demand = OnDemand::No;
    };
    let Some(mut pair) = Pair::new(little) else { return };
    let remote = pair.target.remote_memory().unwrap();
    let part = |number: u64, generation| WindowRef {
        window: WindowId(100 + number),
        generation: Generation(generation),
        ..PART
    };
    let mut windows: Vec<_> = (0..3).map(|number| remote.publish(part(number, 1), pair.window.0)).collect();
    let reached: Vec<Reach> = (0..3).map(|number| decided(&mut pair, &part(number, 1))).collect();
    assert_eq!(reached, [Reach::Yes, Reach::Yes, Reach::No]);
    assert_eq!(decided(&mut pair, &part(1, 1)), Reach::Yes, "who is registered is not asked again");
    // One that nobody reaches makes no room, one that is registered does.
    drop(windows.pop());
    windows.push(remote.publish(part(3, 1), pair.window.0));
    assert_eq!(decided(&mut pair, &part(3, 1)), Reach::No);
    drop(windows.remove(0));
    windows.push(remote.publish(part(4, 1), pair.window.0));
    assert_eq!(decided(&mut pair, &part(4, 1)), Reach::Yes);
}
