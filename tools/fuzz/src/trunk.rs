//! What the routers of nodes say to each other.

use longarm_proto::{
    CHANNEL_BYTES_MAX, ChannelNumber, TRUNK_DATA_BYTES_MAX, TRUNK_HEADER_BYTES, TrunkHeader, TrunkRecord,
};

use crate::inputs::Seeds;

/// Takes the bytes for records: what is accepted has one spelling only, and is no more than a record or a channel takes.
pub fn trunk_record(data: &[u8]) {
    for bytes in data.as_chunks::<TRUNK_HEADER_BYTES>().0 {
        let Ok(header) = TrunkHeader::decode(bytes) else { continue };
        assert_eq!(header.encode(), *bytes);
        match header.record {
            TrunkRecord::Data(bytes) => assert!((1..=TRUNK_DATA_BYTES_MAX).contains(&(bytes as usize))),
            TrunkRecord::Credit(bytes) => assert!((1..=CHANNEL_BYTES_MAX).contains(&u64::from(bytes))),
            TrunkRecord::Open | TrunkRecord::Opened | TrunkRecord::Close | TrunkRecord::Failed(_) => {}
        }
    }
}

/// Each kind of record, and a channel's life.
pub(crate) fn seeds() -> Seeds {
    let record = |record| TrunkHeader { channel: ChannelNumber(0x11), record }.encode().to_vec();
    let life = [TrunkRecord::Open, TrunkRecord::Opened, TrunkRecord::Credit(1 << 16), TrunkRecord::Close];
    vec![
        ("data", record(TrunkRecord::Data(TRUNK_DATA_BYTES_MAX as u32))),
        ("credit", record(TrunkRecord::Credit(CHANNEL_BYTES_MAX as u32))),
        ("life", life.into_iter().flat_map(record).collect()),
    ]
}
