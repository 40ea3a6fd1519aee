//! Addresses of nodes behind their routers: `NODE@ROUTER`, or `NODE@ROUTER/SERVER` where the server takes in ranks by itself as well.

use longarm_proto::NodeId;

const NODE: char = '@';
const SERVER: char = '/';

/// How a node is reached, by what the network below calls the places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Address<'a> {
    pub node: NodeId,
    /// Where routers call.
    pub router: &'a str,
    /// Where ranks call by themselves.
    pub server: Option<&'a str>,
}

impl<'a> Address<'a> {
    pub(super) fn parse(text: &'a str) -> Option<Address<'a>> {
        let (node, places) = text.split_once(NODE)?;
        let node = NodeId(node.parse().ok().filter(|_| node.bytes().all(|byte| byte.is_ascii_digit()))?);
        let (router, server) = match places.split_once(SERVER) {
            Some((router, server)) => (router, Some(server)),
            None => (places, None),
        };
        Some(Address { node, router, server })
    }

    pub(super) fn spell(&self) -> String {
        let Address { node, router, server } = self;
        match server {
            Some(server) => format!("{node}{NODE}{router}{SERVER}{server}"),
            None => format!("{node}{NODE}{router}"),
        }
    }
}

/// What routers call a node: its address without what is only for ranks that call by themselves.
pub(super) fn for_routers(text: &str) -> &str {
    text.split(SERVER).next().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_was_spelt_and_nothing_else_is_one() {
        let both = Address { node: NodeId(3), router: "[::1]:4,192.0.2.1:4", server: Some("192.0.2.1:5") };
        for address in [both, Address { server: None, ..both }] {
            assert_eq!(Address::parse(&address.spell()), Some(address));
            assert_eq!(for_routers(&address.spell()), "3@[::1]:4,192.0.2.1:4");
        }
        for wrong in
            ["", "@", "3", "192.0.2.1:4", "@192.0.2.1:4", "+3@192.0.2.1:4", "a@192.0.2.1:4", "4294967296@192.0.2.1:4"]
        {
            assert_eq!(Address::parse(wrong), None, "{wrong}");
        }
    }
}
