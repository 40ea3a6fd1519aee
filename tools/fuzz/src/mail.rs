//! What stands in front of the data of a message between ranks.

use longarm_proto::{AM_ARGUMENTS_MAX, MAIL_ACTIVE, MAIL_ACTIVE_REPLY, MAIL_COLLECTIVE, MAIL_HEAD_BYTES_MAX, MailHead};

use crate::inputs::Seeds;

/// Takes the bytes for a head: what is accepted has one spelling only, is no longer than any, and has no more data behind it than it
/// says.
pub fn mail_head(data: &[u8]) {
    let Ok(head) = MailHead::decode(data) else { return };
    assert_eq!(spelled(&head), data);
    assert!(data.len() < MAIL_HEAD_BYTES_MAX);
    match &head {
        MailHead::Collective { total_bytes, .. } => {
            assert!(head.check_body(*total_bytes).is_ok());
            assert!(total_bytes.checked_add(1).is_none_or(|more| head.check_body(more).is_err()));
        }
        MailHead::Active { arguments, .. } => {
            assert!(arguments.len() <= AM_ARGUMENTS_MAX && head.check_body(u64::MAX).is_ok());
        }
    }
}

fn spelled(head: &MailHead) -> Vec<u8> {
    match head {
        MailHead::Collective { group, sequence, step, total_bytes } => {
            let (group, sequence) = (group.to_le_bytes(), sequence.to_le_bytes());
            [&[MAIL_COLLECTIVE][..], &group, &sequence, &step.to_le_bytes(), &total_bytes.to_le_bytes()].concat()
        }
        MailHead::Active { handler, is_reply, arguments } => {
            let kind = if *is_reply { MAIL_ACTIVE_REPLY } else { MAIL_ACTIVE };
            let mut bytes = [&[kind][..], &handler.to_le_bytes(), &[arguments.len() as u8]].concat();
            arguments.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
            bytes
        }
    }
}

/// Each kind of head.
pub(crate) fn seeds() -> Seeds {
    let active = |is_reply, count: usize| MailHead::Active { handler: 7, is_reply, arguments: vec![0x1122; count] };
    vec![
        ("collective", spelled(&MailHead::Collective { group: 1, sequence: 2, step: 3, total_bytes: 40 })),
        ("active", spelled(&active(false, 2))),
        ("reply", spelled(&active(true, 0))),
        ("most_arguments", spelled(&active(false, AM_ARGUMENTS_MAX))),
    ]
}
