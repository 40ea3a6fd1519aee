//! MUNGE as it is on this machine: with its daemon credentials come back once, and without it is said what to install or start.

use std::os::unix::fs::MetadataExt;

use longarm_managers::munge::{self, CREDENTIAL_BYTES_MAX, MungeError, PAYLOAD_BYTES_MAX};

fn own_user() -> u32 {
    std::fs::metadata("/proc/self").expect("a process has an owner").uid()
}

#[test]
fn a_credential_tells_user_and_payload_once() {
    let payload = b"job 7\0step 0";
    match munge::encode(payload, own_user()) {
        Ok(credential) => {
            let shown = munge::decode(&credential).unwrap();
            assert_eq!((shown.uid, shown.payload.as_slice()), (own_user(), payload.as_slice()));
            assert_eq!(munge::decode(&credential), Err(MungeError::Replayed));
            let mut forged = credential;
            let middle = forged.len() / 2;
            let letter = if forged.as_bytes()[middle] == b'A' { "B" } else { "A" };
            forged.replace_range(middle..=middle, letter);
            assert!(matches!(munge::decode(&forged), Err(MungeError::Invalid { .. })));
            let for_another = munge::encode(payload, own_user() + 1).unwrap();
            assert_eq!(munge::decode(&for_another), Err(MungeError::ForAnotherUser));
            let empty = munge::encode(b"", own_user()).unwrap();
            assert_eq!(munge::decode(&empty).unwrap().payload, b"");
        }
        Err(error @ MungeError::NoLibrary(_)) => assert!(error.to_string().contains("libmunge2"), "{error}"),
        Err(error @ MungeError::NoDaemon { .. }) => assert!(error.to_string().contains("munged"), "{error}"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn what_is_too_long_or_no_text_is_refused_before_anybody_is_asked() {
    let bytes = PAYLOAD_BYTES_MAX + 1;
    assert_eq!(munge::encode(&vec![0; bytes], 0), Err(MungeError::TooLong { bytes }));
    let bytes = CREDENTIAL_BYTES_MAX + 1;
    assert_eq!(munge::decode(&"M".repeat(bytes)), Err(MungeError::TooLong { bytes }));
    assert_eq!(munge::decode("MUNGE:\0:"), Err(MungeError::NoText));
}
