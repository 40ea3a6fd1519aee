//! The numbers that name things. Each is its own type, so that a rank is never passed where a node is meant.

use std::fmt;

/// Defines a number type that prints as its plain number.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident($number:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub struct $name(pub $number);

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }
    };
}

id! {
    /// A process of the world, numbered from 0. Several ranks share one node.
    Rank(u32)
}
id! {
    /// A set of ranks that share memory, numbered from 0.
    NodeId(u32)
}
id! {
    /// A window, the same number at every rank of the world. Never used again within one job.
    WindowId(u64)
}
id! {
    /// How often the slot of a window was reused. A request that names an older one is refused.
    Generation(u32)
}
id! {
    /// The number that a request has to name to be let into a window.
    AccessKey(u64)
}
id! {
    /// The place of a request in its connection: the first one is 1, and each next one is one more.
    RequestId(u64)
}
id! {
    /// A channel of one trunk. The node that opens channels numbers them from 1 on, and never uses a number again on that trunk.
    ChannelNumber(u32)
}
id! {
    /// One run of one program on all its ranks.
    JobId(u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_prints_as_its_number() {
        assert_eq!(Rank(17).to_string(), "17");
        assert_eq!(format!("{:>4}", NodeId(3)), "   3");
        assert_eq!(JobId(u64::MAX).to_string(), u64::MAX.to_string());
    }
}
