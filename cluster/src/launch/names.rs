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
