//! The suite is passed by a device that does what it should, and by none that does not.
//!
//! The device is the kernel, which reads and writes this process's memory by its addresses, as a device would; the links are
//! those of TCP.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use longarm_memory::{Region, RegionMut};
use longarm_netmod::{
    Capabilities, DeviceRmw, DirectAccess, DirectOutcome, DirectSource, InlinePoll, Interest, Link, LinkError,
    Listener, Loan, Netmod, NoDeviceRmw, Reach, RemoteMemory, Tcp, TcpOptions, Wish, conformance,
};
use longarm_proto::{AccessKey, Generation, Rank, Run, WindowId, WindowRef};

/// What a device does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// Its puts lack their last byte.
    CutsPuts,
    /// Its puts write a byte more.
    WritesBeyond,
    /// It reads what a put is to write when the put ends, and not when it begins.
    KeepsNoCopy,
    /// Its gets bring nothing.
    BringsNothing,
    /// Its gets overtake the puts before them.
    GetsOvertake,
    /// It does puts when somebody asks for their ends.
    PutsLate,
    /// It tells of the last transfer first.
    TellsBackwards,
    /// It tells of each transfer twice.
    TellsTwice,
    /// It lets those in who have not the key.
    IgnoresKeys,
    /// What is withdrawn stays.
    NeverForgets,
    /// An update tells the value that it leaves.
    TellsValueAfter,
    /// An update is done twice.
    UpdatesTwice,
    /// It swaps whatever value is there.
    SwapsAlways,
    /// Nobody hears of what a broken link has left.
    ForgetsAtBreak,
    /// What a broken link has left undone is said to be done.
    ClaimsAtBreak,
    /// It takes lent memory for one piece.
    IgnoresPieces,
    /// It says of what it has kept back that it is done, and loses it.
    LosesBatches,
    /// A get that is looked for is said to be done, and has brought nothing.
    PollsNothing,
    /// A get that was not waited for brings its bytes to nobody.
    LendsNothing,
    /// It says that all is over before it is.
    ClaimsAllOver,
}

const FAULTS: [Fault; 20] = [
    Fault::CutsPuts,
    Fault::WritesBeyond,
    Fault::KeepsNoCopy,
    Fault::BringsNothing,
    Fault::GetsOvertake,
    Fault::PutsLate,
    Fault::TellsBackwards,
    Fault::TellsTwice,
    Fault::IgnoresKeys,
    Fault::NeverForgets,
    Fault::TellsValueAfter,
    Fault::UpdatesTwice,
    Fault::SwapsAlways,
    Fault::ForgetsAtBreak,
    Fault::ClaimsAtBreak,
    Fault::IgnoresPieces,
    Fault::LosesBatches,
    Fault::PollsNothing,
    Fault::LendsNothing,
    Fault::ClaimsAllOver,
];

type Name = (Rank, WindowId, Generation, AccessKey);

fn name(part: &WindowRef, fault: Fault) -> Name {
    let key = if fault == Fault::IgnoresKeys { AccessKey(0) } else { part.key };
    (part.rank, part.window, part.generation, key)
}

/// What it does with memory.
enum What {
    Write { from: Vec<u8>, of: Option<Box<dyn Loan>> },
    Read { into: Box<dyn Loan> },
}

struct Begun {
    ticket: u64,
    at: u64,
    what: What,
}

type Outcomes = VecDeque<(u64, DirectOutcome)>;

struct Device {
    fault: Fault,
    memory: File,
    published: Mutex<HashMap<Name, (u64, u64)>>,
    /// By the address that was called: what broken links have left.
    left: Mutex<HashMap<String, Outcomes>>,
}

#[derive(Clone)]
struct Mock(Tcp, Arc<Device>);

impl Mock {
    fn new(fault: Fault) -> Mock {
        let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem").expect("one's own memory");
        let device = Device { fault, memory, published: Mutex::default(), left: Mutex::default() };
        Mock(Tcp::new(TcpOptions::default()), Arc::new(device))
    }
}

impl Netmod for Mock {
    fn name(&self) -> &'static str {
        "mock"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { remote_memory: true, ..self.0.capabilities() }
    }

    fn remote_memory(&self) -> Option<Arc<dyn RemoteMemory>> {
        Some(Arc::new(self.clone()))
    }

    fn device_rmw(&self) -> Result<(), NoDeviceRmw> {
        Ok(())
    }

    fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        self.0.listen()
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Link>, LinkError> {
        let (tcp, device) = (self.0.connect(address)?, Arc::clone(&self.1));
        let outcomes = device.left.lock().unwrap().remove(address).unwrap_or_default();
        let address = address.to_owned();
        Ok(Box::new(MockLink {
            tcp,
            device,
            address,
            outcomes,
            late: VecDeque::new(),
            polled: None,
            is_batch: false,
            looked: false,
        }))
    }
}

impl RemoteMemory for Mock {
    fn publish(&self, part: WindowRef, memory: RegionMut<'_>) -> Box<dyn Send + Sync> {
        let (device, name) = (Arc::clone(&self.1), name(&part, self.1.fault));
        let place = (memory.as_mut_ptr().expose_provenance() as u64, memory.len() as u64);
        device.published.lock().unwrap().insert(name, place);
        Box::new(Withdrawal(device, name))
    }
}

struct Withdrawal(Arc<Device>, Name);

impl Drop for Withdrawal {
    fn drop(&mut self) {
        if self.0.fault != Fault::NeverForgets {
            self.0.published.lock().unwrap().remove(&self.1);
        }
    }
}

struct MockLink {
    tcp: Box<dyn Link>,
    device: Arc<Device>,
    address: String,
    outcomes: Outcomes,
    late: VecDeque<Begun>,
    /// What a get that was not waited for has read.
    polled: Option<Vec<u8>>,
    /// What is begun is kept back.
    is_batch: bool,
    /// It was asked for an end that it has not looked for.
    looked: bool,
}

impl MockLink {
    fn place(&self, part: &WindowRef) -> Option<u64> {
        Some(self.device.published.lock().unwrap().get(&name(part, self.device.fault))?.0)
    }

    fn do_it(&mut self, begun: Begun) {
        let (fault, memory) = (self.device.fault, &self.device.memory);
        match begun.what {
            What::Write { from, of } => {
                let mut bytes = match of {
                    Some(loan) if fault == Fault::IgnoresPieces => {
                        copied(loan.memory().slice(0, loan.bytes()).as_region())
                    }
                    Some(loan) => bytes_of(&*loan),
                    None => from,
                };
                match fault {
                    Fault::CutsPuts => drop(bytes.pop()),
                    Fault::WritesBeyond => bytes.push(0xbb),
                    _ => {}
                }
                if !(self.is_batch && fault == Fault::LosesBatches) {
                    memory.write_all_at(&bytes, begun.at).expect("it is published");
                }
            }
            What::Read { into } => {
                let mut bytes = vec![0; into.bytes()];
                if fault != Fault::BringsNothing {
                    memory.read_exact_at(&mut bytes, begun.at).expect("it is published");
                }
                into.each(0, bytes.len(), |piece, at| piece.copy_from_slice(&bytes[at..at + piece.len()]));
            }
        }
        self.tell(begun.ticket, DirectOutcome::Done);
    }

    fn tell(&mut self, ticket: u64, outcome: DirectOutcome) {
        self.outcomes.push_back((ticket, outcome));
        if self.device.fault == Fault::TellsTwice {
            self.outcomes.push_back((ticket, outcome));
        }
    }

    fn begin(&mut self, begun: Begun) {
        let is_read = matches!(begun.what, What::Read { .. });
        match self.device.fault {
            Fault::GetsOvertake if is_read => self.do_it(begun),
            Fault::GetsOvertake
            | Fault::PutsLate
            | Fault::KeepsNoCopy
            | Fault::ClaimsAtBreak
            | Fault::ClaimsAllOver => self.late.push_back(begun),
            _ => self.do_it(begun),
        }
    }
}

fn copied(region: Region<'_>) -> Vec<u8> {
    let mut bytes = vec![0; region.len()];
    region.copy_to_slice(&mut bytes);
    bytes
}

fn bytes_of(loan: &dyn Loan) -> Vec<u8> {
    let mut bytes = Vec::new();
    loan.each(0, loan.bytes(), |piece, _| bytes.extend(copied(piece.as_region())));
    bytes
}

impl DirectAccess for MockLink {
    fn reach(&mut self, target: &WindowRef, _: Wish) -> Reach {
        if self.place(target).is_some() { Reach::Yes } else { Reach::No }
    }

    fn put(&mut self, ticket: u64, target: &WindowRef, run: Run, source: DirectSource<'_>) -> Result<(), LinkError> {
        let at = self.place(target).expect("it is published") + run.offset;
        let what = match source {
            DirectSource::Copied(region) if self.device.fault == Fault::KeepsNoCopy => {
                // What it names has another owner by the time that it is read.
                What::Write { from: vec![0xee; region.len()], of: None }
            }
            DirectSource::Copied(region) => What::Write { from: copied(region), of: None },
            DirectSource::Lent(loan) => What::Write { from: Vec::new(), of: Some(loan) },
        };
        self.begin(Begun { ticket, at, what });
        Ok(())
    }

    fn get(&mut self, ticket: u64, target: &WindowRef, run: Run, into: Box<dyn Loan>) -> Result<(), LinkError> {
        let at = self.place(target).expect("it is published") + run.offset;
        self.begin(Begun { ticket, at, what: What::Read { into } });
        Ok(())
    }

    fn rmw(&mut self, ticket: u64, target: &WindowRef, offset: u64, rmw: DeviceRmw) -> Result<(), LinkError> {
        let at = self.place(target).expect("it is published") + offset;
        let mut word = [0; 8];
        self.device.memory.read_exact_at(&mut word, at).expect("it is published");
        let before = u64::from_ne_bytes(word);
        let fault = self.device.fault;
        let after = match rmw {
            DeviceRmw::FetchAdd(value) if fault == Fault::UpdatesTwice => before.wrapping_add(2 * value),
            DeviceRmw::FetchAdd(value) => before.wrapping_add(value),
            DeviceRmw::CompareSwap { expected, new } if expected == before || fault == Fault::SwapsAlways => new,
            DeviceRmw::CompareSwap { .. } => before,
        };
        self.device.memory.write_all_at(&after.to_ne_bytes(), at).expect("it is published");
        self.tell(ticket, DirectOutcome::Value(if fault == Fault::TellsValueAfter { after } else { before }));
        Ok(())
    }

    fn begin_batch(&mut self) {
        self.is_batch = true;
    }

    fn post_batch(&mut self) -> Result<(), LinkError> {
        self.is_batch = false;
        Ok(())
    }

    fn get_polling(&mut self, target: &WindowRef, run: Run, into: RegionMut<'_>, looks: u32) -> InlinePoll {
        let at = self.place(target).expect("it is published") + run.offset;
        let mut bytes = vec![0; into.len()];
        self.device.memory.read_exact_at(&mut bytes, at).expect("it is published");
        if looks == 1 {
            self.polled = Some(bytes);
            return InlinePoll::UnderWay;
        }
        if self.device.fault != Fault::PollsNothing {
            into.copy_from_slice(&bytes);
        }
        InlinePoll::Done
    }

    fn lend_polled(&mut self, ticket: u64, into: Box<dyn Loan>) {
        let bytes = self.polled.take().expect("a get is under way");
        if self.device.fault != Fault::LendsNothing {
            into.memory().copy_from_slice(&bytes);
        }
        self.tell(ticket, DirectOutcome::Done);
    }

    fn look_for_ends(&mut self, _: u32) -> bool {
        self.device.fault == Fault::ClaimsAllOver || self.late.is_empty()
    }

    fn take_outcome(&mut self) -> Option<(u64, DirectOutcome)> {
        if self.device.fault == Fault::ClaimsAllOver && self.outcomes.is_empty() && !self.looked {
            self.looked = true;
            return None;
        }
        if self.device.fault == Fault::TellsBackwards {
            return self.outcomes.pop_back();
        }
        if self.outcomes.is_empty()
            && let Some(begun) = self.late.pop_front()
        {
            self.do_it(begun);
        }
        self.looked = false;
        self.outcomes.pop_front()
    }
}

impl Link for MockLink {
    fn send(&mut self, regions: &[Region<'_>]) -> Result<usize, LinkError> {
        if self.device.fault == Fault::ClaimsAtBreak {
            // All but the last one are done when the link breaks.
            while let Some(begun) = self.late.pop_front() {
                self.do_it(begun);
            }
        }
        self.tcp.send(regions)
    }

    fn receive(&mut self, regions: &[RegionMut<'_>]) -> Result<usize, LinkError> {
        self.tcp.receive(regions)
    }

    fn direct(&mut self) -> Option<&mut dyn DirectAccess> {
        Some(self)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.tcp.descriptor()
    }

    fn awaits(&self, wanted: Interest) -> Interest {
        self.tcp.awaits(wanted)
    }

    fn peer_name(&self) -> &str {
        self.tcp.peer_name()
    }
}

impl Drop for MockLink {
    fn drop(&mut self) {
        let fault = self.device.fault;
        let undone = if fault == Fault::ClaimsAtBreak { DirectOutcome::Done } else { DirectOutcome::NotDone };
        let mut left = std::mem::take(&mut self.outcomes);
        left.extend(self.late.drain(..).map(|begun| (begun.ticket, undone)));
        if fault != Fault::ForgetsAtBreak {
            self.device.left.lock().unwrap().insert(self.address.clone(), left);
        }
    }
}

#[test]
fn a_device_that_does_what_it_should_conforms() {
    conformance(&Mock::new(Fault::None));
}

#[test]
fn the_suite_finds_every_fault_of_a_device() {
    let missed: Vec<Fault> = FAULTS
        .into_iter()
        .filter(|fault| {
            let mock = Mock::new(*fault);
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| conformance(&mock))).is_ok()
        })
        .collect();
    assert_eq!(missed, [], "devices that do this pass");
}
