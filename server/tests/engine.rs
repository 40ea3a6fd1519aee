//! The server's engine against peers that have proven themselves and then misbehave, over real sockets and over the
//! simulated network that cuts every message everywhere.
//!
//! What must hold: a request that cannot be is refused by its reason or ends its connection, nothing of it is applied, and everybody else is
//! served as before.
#![forbid(unsafe_code)]

#[path = "support/turning.rs"]
mod turning;

mod engine {
    mod answers;
    mod mail;
    mod peers;
    mod requests;
    mod sessions;
    mod strangers;
    mod watched;
}
