//! Where servers listen, as it is asked for.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

/// The longest name that an interface can have.
const NAME_BYTES_MAX: usize = 15;

/// At which addresses of this machine the servers listen.
///
/// ```
/// use longarm::config::{Config, InterfaceChoice, InterfaceName, NoInterfaceName};
///
/// let mut config = Config::default();
/// assert_eq!(config.interface, InterfaceChoice::Auto);
/// config.interface = "eth0, 10.0.0.0/8".parse().unwrap();
/// config.interface = std::net::IpAddr::from([127, 0, 0, 1]).into();
/// assert_eq!(config.interface.to_string(), "127.0.0.1");
/// config.interface = InterfaceChoice::Listed(vec![InterfaceName::Name("ib0".into())]);
/// let refused = "10.0.0.0/99".parse::<InterfaceChoice>();
/// assert_eq!(refused, Err(NoInterfaceName { text: "10.0.0.0/99".into() }));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceChoice {
    /// In a job on one machine the loopback; on several what the others can reach.
    Auto,
    /// These, in this order.
    Listed(Vec<InterfaceName>),
}

/// Some addresses of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceName {
    /// This one.
    Address(IpAddr),
    /// Those in this network.
    Network(IpNet),
    /// Those of the interface of this name.
    Name(String),
}

/// A text names no interface.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no address, no network and no name of an interface")]
pub struct NoInterfaceName {
    /// The text.
    pub text: String,
}

longarm_client::debug_as_display!(NoInterfaceName);

impl From<IpAddr> for InterfaceChoice {
    fn from(address: IpAddr) -> InterfaceChoice {
        InterfaceChoice::Listed(vec![InterfaceName::Address(address)])
    }
}

impl FromStr for InterfaceChoice {
    type Err = NoInterfaceName;

    fn from_str(text: &str) -> Result<InterfaceChoice, NoInterfaceName> {
        match text.trim() {
            "auto" => Ok(InterfaceChoice::Auto),
            text => text.split(',').map(str::parse).collect::<Result<_, _>>().map(InterfaceChoice::Listed),
        }
    }
}

impl FromStr for InterfaceName {
    type Err = NoInterfaceName;

    fn from_str(text: &str) -> Result<InterfaceName, NoInterfaceName> {
        let text = text.trim();
        if let Ok(address) = text.parse() {
            return Ok(InterfaceName::Address(address));
        }
        if let Ok(network) = text.parse::<IpNet>() {
            return Ok(InterfaceName::Network(network.trunc()));
        }
        let is_of_names = |letter: char| letter.is_ascii_graphic() && letter != '/';
        // What begins like an address and is none was meant to be one.
        let is_number = text.contains(':') || text.chars().all(|letter| letter.is_ascii_digit() || letter == '.');
        match !is_number && text != "auto" && text.len() <= NAME_BYTES_MAX && text.chars().all(is_of_names) {
            true => Ok(InterfaceName::Name(text.to_owned())),
            false => Err(NoInterfaceName { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for InterfaceChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InterfaceChoice::Auto => formatter.write_str("auto"),
            InterfaceChoice::Listed(names) => {
                let names: Vec<String> = names.iter().map(ToString::to_string).collect();
                formatter.write_str(&names.join(","))
            }
        }
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InterfaceName::Address(address) => address.fmt(formatter),
            InterfaceName::Network(network) => network.fmt(formatter),
            InterfaceName::Name(name) => formatter.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_networks_and_names_are_told_apart_and_shown_as_they_were_set() {
        let choice: InterfaceChoice = "eth0, 10.1.2.3/8,::1,fd00::/8,127.0.0.2,br-lan.7".parse().unwrap();
        let InterfaceChoice::Listed(names) = &choice else { panic!("{choice}") };
        assert!(matches!(&names[0], InterfaceName::Name(name) if name == "eth0"));
        assert!(matches!(&names[1], InterfaceName::Network(network) if network.to_string() == "10.0.0.0/8"));
        assert!(matches!(&names[2], InterfaceName::Address(address) if address.is_ipv6()));
        assert!(matches!(&names[3], InterfaceName::Network(network) if network.prefix_len() == 8));
        assert!(matches!(&names[5], InterfaceName::Name(name) if name == "br-lan.7"));
        assert_eq!(choice.to_string(), "eth0,10.0.0.0/8,::1,fd00::/8,127.0.0.2,br-lan.7");
        assert_eq!(choice.to_string().parse(), Ok(choice));
        assert_eq!(" auto ".parse(), Ok(InterfaceChoice::Auto));
    }

    #[test]
    fn what_can_be_no_interface_is_refused() {
        for text in [
            "",
            ",",
            "eth0,",
            "10.0.0.0/33",
            "300.1.1.1",
            "10.0.0",
            "fe80::zz",
            "a/b",
            "a b",
            "0123456789abcdef",
            "eth0,auto",
        ] {
            assert!(text.parse::<InterfaceChoice>().is_err(), "{text:?}");
        }
    }
}
