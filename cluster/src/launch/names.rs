//! Whether hosts can be found by their names.

use std::net::ToSocketAddrs;
use std::process::{Command, Stdio};

use super::hosts::{Host, Source};
use crate::ClusterError;

/// Refuses a host whose name leads to no address, before anything is started there. Ranks of it could not be started, nor reach their supervisor.
///
/// # Errors
///
/// The first such host, and where its name stands.
pub fn check_names(hosts: &[Host], from: &Source) -> Result<(), ClusterError> {
    for Host { name, .. } in hosts {
        // Any port: none is opened.
        let host = name.rsplit('@').next().unwrap_or(name);
        let is_here = crate::host_name() == host;
        if !is_here && (host, 0).to_socket_addrs().is_err() && !is_alias(host, &settings_of_ssh(name)) {
            return Err(ClusterError::UnknownHost { name: name.clone(), from: from.clone() });
        }
    }
    Ok(())
}

/// Beginning of what ssh says of a host that it does not reach: `ssh: connect to host HOST port PORT: WHY`.
const NO_CONNECTION: &str = "ssh: connect to host ";

/// The host that ssh did not reach, and why, by what a starter said on its stderr. Who is known to the job by another name is called as `hosts` calls it.
pub fn unreached<'a>(lines: impl IntoIterator<Item = &'a str>, hosts: &[Host]) -> Option<(String, String)> {
    let parts = |line: &'a str| {
        let (_, rest) = line.split_once(NO_CONNECTION)?;
        let (host, rest) = rest.split_once(" port ")?;
        let (_, why) = rest.split_once(": ")?;
        Some((host, why.trim_end()))
    };
    let (host, why) = lines.into_iter().find_map(parts)?;
    let bare = |name: &'_ str| name.rsplit('@').next().unwrap_or(name).to_string();
    let known = hosts.iter().find(|known| bare(&known.name) == host);
    Some((known.map_or(host, |known| &known.name).to_string(), why.to_string()))
}

/// What ssh, which starts ranks elsewhere, would do to reach a host: a setting a line. Empty where there is no such program.
fn settings_of_ssh(name: &str) -> String {
    let output =
        Command::new("ssh").args(["-G", "--", name]).stdin(Stdio::null()).stderr(Stdio::null()).output();
    output.map_or(String::new(), |output| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether ssh knows a host by another name, or reaches it through a third one.
fn is_alias(name: &str, settings: &str) -> bool {
    settings.lines().filter_map(|line| line.split_once(' ')).any(|(key, value)| match key {
        "hostname" => !value.eq_ignore_ascii_case(name),
        "proxyjump" | "proxycommand" => value != "none",
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_configuration_of_ssh_is_one() {
        assert!(is_alias("gpu1", "user me\nhostname 10.0.0.7\nport 22\n"));
        assert!(is_alias("gpu1", "hostname gpu1\nproxyjump login\n"));
        assert!(!is_alias("GPU1", "user me\nhostname gpu1\nproxycommand none\n") && !is_alias("gpu1", ""));
    }

    #[test]
    fn a_host_that_ssh_does_not_reach_is_found_in_what_it_says() {
        let hosts = ["me@n2", "n3"].map(|name| Host { name: name.into(), slots: 1 });
        let told = |line: &str| unreached(["-----", line, "a word"], &hosts);
        let found = |host: &str, why: &str| Some((host.to_string(), why.to_string()));
        let refused = "ssh: connect to host n2 port 22: Connection refused\r";
        assert_eq!(told(refused), found("me@n2", "Connection refused"));
        let late = "ssh: connect to host 10.0.0.7 port 2222: Connection timed out";
        assert_eq!(told(late), found("10.0.0.7", "Connection timed out"));
        assert_eq!(told("segue: error: cannot connect"), None);
    }

    /// No name has an empty label: no server is asked for it.
    #[test]
    fn a_host_that_cannot_be_found_is_named() {
        let hosts = |names: &[&str]| -> Vec<Host> {
            names.iter().map(|name| Host { name: (*name).into(), slots: 1 }).collect()
        };
        check_names(&hosts(&["localhost", "127.0.0.1", "::1"]), &Source::Option).unwrap();
        let error = check_names(&hosts(&["localhost", "n9..invalid"]), &Source::Option).unwrap_err();
        assert!(
            error.to_string().starts_with("the host n9..invalid of --hosts cannot be found: "),
            "{error}"
        );
        assert_eq!(error.exit_code(), crate::exit_code::UNAVAILABLE);
        assert!(error.hint().unwrap().contains("--listen"));
    }
}
