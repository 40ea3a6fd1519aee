use super::*;

/// A machine of made-up interfaces: "NAME ADDRESS/BITS [WORD...]".
fn machine(lines: &[&str]) -> Vec<Local> {
    let lo = ["lo 127.0.0.1/8 loopback", "lo ::1/128 loopback"];
    let all = lo.iter().chain(lines);
    (1..).zip(all).map(|(index, line)| local(index, line)).collect()
}

fn local(index: u32, line: &str) -> Local {
    let mut words = line.split(' ');
    let (name, network) = (words.next().unwrap().to_owned(), words.next().unwrap().parse().unwrap());
    let words: Vec<&str> = words.collect();
    Local {
        name,
        index,
        network,
        is_up: !words.contains(&"down"),
        is_loopback: words.contains(&"loopback"),
        is_inner: words.contains(&"inner"),
        is_default: words.contains(&"default"),
        speed_mbit: words.iter().find_map(|word| word.parse().ok()),
    }
}

fn chosen(choice: &str, several_machines: bool, locals: &[Local]) -> Result<String, InitError> {
    let chosen = choose(&choice.parse().unwrap(), several_machines, locals)?;
    Ok(chosen.iter().map(|interface| interface.address().to_string()).collect::<Vec<_>>().join(" "))
}

#[test]
fn several_machines_listen_at_what_others_reach_and_never_on_the_loopback() {
    let here = machine(&[
        "eth0 10.1.0.5/16 default",
        "eth0 fd00::5/64 default",
        "eth0 fe80::5/64",
        "eth1 192.0.2.5/24 down",
        "docker0 172.17.0.1/16 inner",
        "virbr0 192.168.122.1/24 inner",
    ]);
    assert_eq!(chosen("auto", true, &here).unwrap(), "10.1.0.5 fd00::5");
}

#[test]
fn the_quickest_comes_first_and_then_the_one_by_which_all_else_goes() {
    let here = machine(&["a 10.0.0.1/24 default 1000", "b 10.0.1.1/24 100000", "b fd01::1/64 100000", "c 10.0.2.1/24"]);
    assert_eq!(chosen("auto", true, &here).unwrap(), "10.0.1.1 fd01::1 10.0.0.1 10.0.2.1");
}

#[test]
fn addresses_of_one_wire_come_into_it_where_there_are_no_others() {
    let here = machine(&["eth0 fe80::5/64", "eth1 169.254.7.7/16", "docker0 172.17.0.1/16 inner"]);
    assert_eq!(chosen("auto", true, &here).unwrap(), "169.254.7.7 fe80::5");
    let interfaces = choose(&InterfaceChoice::Auto, true, &here).unwrap();
    assert_eq!(interfaces.iter().map(|interface| interface.scope).collect::<Vec<_>>(), [0, 3], "with its interface");
    assert_eq!(chosen("auto", true, &machine(&["docker0 172.17.0.1/16 inner"])).unwrap(), "172.17.0.1");
}

#[test]
fn a_machine_without_a_way_to_others_says_what_it_has() {
    let error = chosen("auto", true, &machine(&["eth0 10.1.0.5/16 down"])).unwrap_err().to_string();
    assert!(error.contains("set LONGARM_INTERFACE") && error.contains("eth0 10.1.0.5/16 (down)"), "{error}");
}

#[test]
fn one_machine_listens_on_the_loopback_alone() {
    let interfaces = addresses_to_listen_on(&InterfaceChoice::Auto, false).unwrap();
    assert_eq!(interfaces, [Interface::from(IpAddr::from([127, 0, 0, 1]))]);
}

#[test]
fn interfaces_are_chosen_by_name_network_and_address_in_the_order_of_the_list() {
    let here =
        machine(&["eth0 10.1.0.5/16", "eth0 fd00::5/64", "eth0 fe80::5/64", "ib0 10.2.0.5/16", "ib0 fd00:2::5/64"]);
    let asked = |choice| chosen(choice, true, &here).unwrap();
    assert_eq!(asked("ib0,eth0"), "10.2.0.5 fd00:2::5 10.1.0.5 fd00::5");
    assert_eq!(asked("10.0.0.0/8"), "10.1.0.5 10.2.0.5");
    assert_eq!(asked("fd00::/16"), "fd00::5 fd00:2::5");
    assert_eq!(asked("fe80::/10"), "fe80::5", "asked for by its network");
    assert_eq!(asked("10.2.0.5,ib0,10.0.0.0/8"), "10.2.0.5 fd00:2::5 10.1.0.5", "each once");
    assert_eq!(asked("0.0.0.0/0"), "10.1.0.5 10.2.0.5", "the loopback is not for others");
}

#[test]
fn the_loopback_can_be_asked_for() {
    let here = machine(&["eth0 10.1.0.5/16"]);
    assert_eq!(chosen("lo", false, &here).unwrap(), "127.0.0.1 ::1");
    assert_eq!(chosen("127.0.0.0/8", false, &here).unwrap(), "127.0.0.1");
    assert_eq!(chosen("127.0.0.9", false, &here).unwrap(), "127.0.0.9", "nobody lists it, and it is there");
    assert!(chosen("lo", true, &here).is_err(), "by name, and no other machine reaches it");
    assert_eq!(chosen("127.0.0.1", true, &here).unwrap(), "127.0.0.1", "who names an address means it");
}

#[test]
fn what_no_interface_has_is_an_error_that_lists_those_that_there_are() {
    let here = machine(&["eth0 10.1.0.5/16", "eth1 10.3.0.5/16 down"]);
    for asked in ["eth7", "192.168.0.0/16", "10.1.0.6", "eth1", "eth0,ib0"] {
        let error = chosen(asked, true, &here).unwrap_err().to_string();
        let name = asked.split(',').next_back().unwrap();
        assert!(error.contains(&format!("asks for {name},")), "{error}");
        assert!(error.contains("eth0 10.1.0.5/16, eth1 10.3.0.5/16 (down)"), "{error}");
    }
}

#[test]
fn an_address_is_taken_at_its_word_where_the_system_lists_nothing() {
    assert_eq!(chosen("10.1.0.6", true, &[]).unwrap(), "10.1.0.6");
    assert!(chosen("eth0", true, &[]).is_err());
}

#[test]
fn a_machine_of_very_many_addresses_tells_others_of_some() {
    let lines: Vec<String> = (0..100).map(|number| format!("eth0 10.0.{number}.1/24")).collect();
    let here = machine(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(choose(&InterfaceChoice::Auto, true, &here).unwrap().len(), AUTO_MAX);
    assert_eq!(choose(&"eth0".parse().unwrap(), true, &here).unwrap().len(), 100, "all that were asked for");
}
