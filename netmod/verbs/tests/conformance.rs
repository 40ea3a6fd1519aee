//! The suite that every netmod passes: on one device, between two, and where there is none. Without a device only the last.

mod skipped;

use std::sync::Arc;

use longarm_netmod::{
    Capabilities, Link, LinkError, Listener, Netmod, NoDeviceRmw, RemoteMemory, TcpOptions, conformance,
};
use longarm_verbs::{Verbs, VerbsOptions};

use skipped::skipped;

fn verbs(device: &str) -> Verbs {
    Verbs::new(TcpOptions::default(), VerbsOptions { device: device.into(), ..VerbsOptions::default() })
}

/// The device of this number, if the machine has so many. Says when not.
fn device(number: usize) -> Option<String> {
    let names = longarm_verbs::device_names();
    if names.len() <= number {
        skipped(&format!("{} RDMA devices on this machine", names.len()));
    }
    names.get(number).cloned()
}

/// Listens on one device and calls from another.
struct Between {
    here: Verbs,
    there: Verbs,
}

impl Netmod for Between {
    fn name(&self) -> &'static str {
        "verbs"
    }

    fn capabilities(&self) -> Capabilities {
        self.here.capabilities()
    }

    fn remote_memory(&self) -> Option<Arc<dyn RemoteMemory>> {
        self.there.remote_memory()
    }

    fn device_rmw(&self) -> Result<(), NoDeviceRmw> {
        self.here.device_rmw().and(self.there.device_rmw())
    }

    fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        self.there.listen()
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, LinkError> {
        self.here.connect(address)
    }
}

#[test]
fn one_device_conforms() {
    let Some(device) = device(0) else { return };
    let verbs = verbs(&device);
    verbs.open().expect("the device can be used");
    conformance(&verbs);
    assert!(verbs.counts().unwrap().messages > 0, "nothing went over the device");
}

#[test]
fn two_devices_conform() {
    let (Some(here), Some(there)) = (device(0), device(1)) else { return };
    let between = Between { here: verbs(&here), there: verbs(&there) };
    conformance(&between);
    for end in [&between.here, &between.there] {
        assert!(end.counts().expect("its device was opened").messages > 0, "nothing went over the device");
    }
}

#[test]
fn small_and_few_buffers_conform() {
    let Some(device) = device(0) else { return };
    let options = VerbsOptions { device, slab_bytes: 256, credits: 4, ..VerbsOptions::default() };
    conformance(&Verbs::new(TcpOptions::default(), options));
}

#[test]
fn without_a_device_it_is_tcp() {
    let none = verbs("no-such-device");
    let why = none.open().expect_err("there is no such device").to_string();
    assert!(why.contains("no-such-device") || why.contains("libibverbs"), "{why}");
    conformance(&none);
}

#[test]
fn with_a_device_on_one_side_only_it_is_tcp() {
    let Some(device) = device(0) else { return };
    conformance(&Between { here: verbs(&device), there: verbs("no-such-device") });
    conformance(&Between { here: verbs("no-such-device"), there: verbs(&device) });
}
