//! The forms in which an operation can be issued and waited for.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

use longarm::error::TransferError;
use longarm::{Element, Handle, Number, Update, Window, World, wait_all, wait_any, wait_some};

use super::shape::Shape;

/// How operations are issued, and what is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Blocking,
    Wait,
    Test,
    Await,
    WaitAny,
    WaitSome,
    WaitAll,
    /// The handle is dropped, and quiet called.
    Dropped,
    /// The handle is forgotten, and quiet called.
    Forgotten,
    /// Without handles, in a scope.
    Scope,
}

impl Form {
    pub const EVERY: [Form; 10] = [
        Form::Blocking,
        Form::Wait,
        Form::Test,
        Form::Await,
        Form::WaitAny,
        Form::WaitSome,
        Form::WaitAll,
        Form::Dropped,
        Form::Forgotten,
        Form::Scope,
    ];
}

/// An operation, its shape, and the buffer it reads or fills.
pub type Operand<T> = (Shape, Vec<T>);

/// A part of a window as the target of operations.
pub struct Target<'a, T> {
    pub world: &'a World,
    pub window: &'a Window<T>,
    pub rank: u32,
    /// Added to all indices at the target.
    pub base: usize,
}

impl<T: Element> Target<'_, T> {
    /// Puts all parts. The buffers come back, if the form gives them back.
    pub fn put(&self, form: Form, parts: Vec<Operand<T>>) -> Option<Vec<Vec<T>>> {
        match form {
            Form::Blocking => {
                parts.iter().for_each(|part| self.put_now(part).expect("a put"));
                Some(buffers(parts))
            }
            Form::Scope => {
                let scoped = self.world.scope(|scope| {
                    for (shape, source) in &parts {
                        match shape {
                            Shape::Run { target, .. } => scope.put(self.window, self.rank, self.base + target, source),
                            Shape::Strided { target, origin } => {
                                let (to, from) = (target.patch(self.base), origin.patch(0));
                                scope.put(self.window, self.rank, to.with_buffer(&from), source);
                            }
                            Shape::Vector(segments) => {
                                let segments = Shape::shifted(segments, self.base);
                                scope.put(self.window, self.rank, &segments, source);
                            }
                        }
                    }
                });
                scoped.expect("a scope of puts");
                Some(buffers(parts))
            }
            form => {
                let started = parts.into_iter().map(|part| self.put_started(part).expect("a started put"));
                finish(self.world, form, started.collect())
            }
        }
    }

    fn put_now(&self, (shape, source): &Operand<T>) -> Result<(), TransferError> {
        match shape {
            Shape::Run { target, .. } => self.window.put(self.rank, self.base + target, source),
            Shape::Strided { target, origin } => {
                self.window.put(self.rank, target.patch(self.base).with_buffer(&origin.patch(0)), source)
            }
            Shape::Vector(segments) => self.window.put(self.rank, &Shape::shifted(segments, self.base), source),
        }
    }

    fn put_started(&self, (shape, source): Operand<T>) -> Result<Handle<Vec<T>>, TransferError> {
        match shape {
            Shape::Run { target, .. } => self.window.start_put(self.rank, self.base + target, source),
            Shape::Strided { target, origin } => {
                self.window.start_put(self.rank, target.patch(self.base).with_buffer(&origin.patch(0)), source)
            }
            Shape::Vector(segments) => self.window.start_put(self.rank, &Shape::shifted(&segments, self.base), source),
        }
    }

    /// Gets into the buffers of all parts. They come back, if the form gives them back.
    pub fn get(&self, form: Form, mut parts: Vec<Operand<T>>) -> Option<Vec<Vec<T>>> {
        match form {
            Form::Blocking => {
                parts.iter_mut().for_each(|part| self.get_now(part).expect("a get"));
                Some(buffers(parts))
            }
            Form::Scope => {
                let scoped = self.world.scope(|scope| {
                    for (shape, buffer) in &mut parts {
                        match shape {
                            Shape::Run { target, .. } => scope.get(self.window, self.rank, self.base + *target, buffer),
                            Shape::Strided { target, origin } => {
                                let (from, to) = (target.patch(self.base), origin.patch(0));
                                scope.get(self.window, self.rank, from.with_buffer(&to), buffer);
                            }
                            Shape::Vector(segments) => {
                                let segments = Shape::shifted(segments, self.base);
                                scope.get(self.window, self.rank, &segments, buffer);
                            }
                        }
                    }
                });
                scoped.expect("a scope of gets");
                Some(buffers(parts))
            }
            form => {
                let started = parts.into_iter().map(|part| self.get_started(part).expect("a started get"));
                finish(self.world, form, started.collect())
            }
        }
    }

    fn get_now(&self, (shape, buffer): &mut Operand<T>) -> Result<(), TransferError> {
        match shape {
            Shape::Run { target, .. } => self.window.get(self.rank, self.base + *target, buffer),
            Shape::Strided { target, origin } => {
                self.window.get(self.rank, target.patch(self.base).with_buffer(&origin.patch(0)), buffer)
            }
            Shape::Vector(segments) => self.window.get(self.rank, &Shape::shifted(segments, self.base), buffer),
        }
    }

    fn get_started(&self, (shape, buffer): Operand<T>) -> Result<Handle<Vec<T>>, TransferError> {
        match shape {
            Shape::Run { target, .. } => self.window.start_get(self.rank, self.base + target, buffer),
            Shape::Strided { target, origin } => {
                self.window.start_get(self.rank, target.patch(self.base).with_buffer(&origin.patch(0)), buffer)
            }
            Shape::Vector(segments) => self.window.start_get(self.rank, &Shape::shifted(&segments, self.base), buffer),
        }
    }
}

impl<T: Number> Target<'_, T> {
    /// Accumulates all parts. The buffers come back, if the form gives them back.
    pub fn accumulate(&self, form: Form, update: Update<T>, parts: Vec<Operand<T>>) -> Option<Vec<Vec<T>>> {
        match form {
            Form::Blocking => {
                parts.iter().for_each(|part| self.accumulate_now(update, part).expect("an accumulate"));
                Some(buffers(parts))
            }
            Form::Scope => {
                let scoped = self.world.scope(|scope| {
                    for (shape, source) in &parts {
                        match shape {
                            Shape::Run { target, .. } => {
                                scope.accumulate(self.window, self.rank, self.base + target, update, source);
                            }
                            Shape::Strided { target, origin } => {
                                let (to, from) = (target.patch(self.base), origin.patch(0));
                                scope.accumulate(self.window, self.rank, to.with_buffer(&from), update, source);
                            }
                            Shape::Vector(segments) => {
                                let segments = Shape::shifted(segments, self.base);
                                scope.accumulate(self.window, self.rank, &segments, update, source);
                            }
                        }
                    }
                });
                scoped.expect("a scope of accumulates");
                Some(buffers(parts))
            }
            form => {
                let started = parts.into_iter().map(|part| self.accumulate_started(update, part).expect("a start"));
                finish(self.world, form, started.collect())
            }
        }
    }

    fn accumulate_now(&self, update: Update<T>, (shape, source): &Operand<T>) -> Result<(), TransferError> {
        match shape {
            Shape::Run { target, .. } => self.window.accumulate(self.rank, self.base + target, update, source),
            Shape::Strided { target, origin } => {
                let (to, from) = (target.patch(self.base), origin.patch(0));
                self.window.accumulate(self.rank, to.with_buffer(&from), update, source)
            }
            Shape::Vector(segments) => {
                self.window.accumulate(self.rank, &Shape::shifted(segments, self.base), update, source)
            }
        }
    }

    fn accumulate_started(
        &self,
        update: Update<T>,
        (shape, source): Operand<T>,
    ) -> Result<Handle<Vec<T>>, TransferError> {
        match shape {
            Shape::Run { target, .. } => self.window.start_accumulate(self.rank, self.base + target, update, source),
            Shape::Strided { target, origin } => {
                let (to, from) = (target.patch(self.base), origin.patch(0));
                self.window.start_accumulate(self.rank, to.with_buffer(&from), update, source)
            }
            Shape::Vector(segments) => {
                let segments = Shape::shifted(&segments, self.base);
                self.window.start_accumulate(self.rank, &segments, update, source)
            }
        }
    }
}

fn buffers<T>(parts: Vec<Operand<T>>) -> Vec<Vec<T>> {
    parts.into_iter().map(|part| part.1).collect()
}

/// Waits for all of the operations as the form says; gives what they bring, in their order.
pub fn finish<R>(world: &World, form: Form, handles: Vec<Handle<R>>) -> Option<Vec<R>> {
    match form {
        Form::Blocking | Form::Scope => unreachable!("forms without handles"),
        Form::Wait => {
            // The last one first, so that others complete while nobody waits for them.
            let mut brought: Vec<R> = handles.into_iter().rev().map(|handle| handle.wait().expect("a wait")).collect();
            brought.reverse();
            Some(brought)
        }
        Form::Test => {
            while !handles.iter().all(Handle::test) {
                std::thread::yield_now();
            }
            Some(handles.into_iter().map(|handle| handle.wait().expect("a tested handle")).collect())
        }
        Form::Await => Some(futures_lite::future::block_on(all_at_once(handles))),
        Form::WaitAny => Some(by_completion(handles, |open| vec![wait_any(open).expect("some are open")])),
        Form::WaitSome => Some(by_completion(handles, |open| {
            let places = wait_some(open);
            assert!(!places.is_empty(), "wait_some came back with nothing");
            places
        })),
        Form::WaitAll => Some(wait_all(handles).expect("a wait for all")),
        Form::Dropped => {
            drop(handles);
            world.quiet().expect("quiet");
            None
        }
        Form::Forgotten => {
            handles.into_iter().for_each(std::mem::forget);
            world.quiet().expect("quiet");
            None
        }
    }
}

/// Polls all of them whenever one says that it has moved on.
async fn all_at_once<R>(mut handles: Vec<Handle<R>>) -> Vec<R> {
    let mut brought: Vec<Option<R>> = handles.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (handle, brought) in handles.iter_mut().zip(&mut brought).filter(|(_, brought)| brought.is_none()) {
            if let Poll::Ready(outcome) = Pin::new(handle).poll(context) {
                *brought = Some(outcome.expect("an awaited handle"));
            }
        }
        if brought.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    brought.into_iter().flatten().collect()
}

/// Takes handles out as they complete.
fn by_completion<R>(handles: Vec<Handle<R>>, wait: impl Fn(&[Handle<R>]) -> Vec<usize>) -> Vec<R> {
    let mut brought: Vec<Option<R>> = handles.iter().map(|_| None).collect();
    let mut places: Vec<usize> = (0..handles.len()).collect();
    let mut open = handles;
    while !open.is_empty() {
        let complete = wait(&open);
        assert!(complete.is_sorted(), "places come in order");
        for at in complete.into_iter().rev() {
            assert!(open[at].test(), "what is said to be complete is complete");
            let handle = open.remove(at);
            brought[places.remove(at)] = Some(handle.wait().expect("a complete operation"));
        }
    }
    brought.into_iter().map(|one| one.expect("each was completed")).collect()
}
