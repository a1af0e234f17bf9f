//! `segue watch`: runs in the terminal, or as a web page.

use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use segue_cluster::Preemption;
use segue_watch::serve::{Guard, serve, token};
use segue_watch::{RunView, Runs, page, terminal};
use serde_json::{Value, json};

use crate::failure::{Failure, IO_FAILED, USAGE};
use crate::output::Output;

/// Where the page is served unless told: this host alone reaches it.
const ADDRESS: &str = "127.0.0.1:6070";

/// Arguments of `segue watch`.
#[derive(Args)]
#[command(after_help = "\
    The server has /metrics for Prometheus and /runs.json for programs. Ctrl-C ends it.\n\n\
    Examples:\n  \
    segue watch runs/one runs/other\n  \
    segue watch --serve=0.0.0.0:6070 --host-name node1 runs/one\n  \
    segue watch --json runs/one | jq .runs[0].step")]
pub struct WatchArgs {
    /// Folders of runs, or of runs of several seeds.
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Serve a web page, at 127.0.0.1:6070 or where `=ADDR:PORT` says. Elsewhere than on the loopback it asks for a token, which is part of
    /// the address that is printed.
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, require_equals = true, default_missing_value = ADDRESS, value_parser = address)]
    serve: Option<SocketAddr>,
    /// A name that the server goes by beside its address and localhost; once for each.
    #[arg(long = "host-name", value_name = "NAME", requires = "serve")]
    host_names: Vec<String>,
    /// Ask for a token on the loopback too: other users of this host reach it.
    #[arg(long, requires = "serve")]
    token: bool,
}

/// An address and a port, or a port of the loopback.
fn address(text: &str) -> Result<SocketAddr, String> {
    let of_loopback = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    text.parse()
        .or_else(|_| text.parse().map(of_loopback))
        .map_err(|_| "not ADDRESS:PORT, such as 0.0.0.0:6070".into())
}

/// Shows the runs. With `--json` and no server, what is known of them now is the result.
pub fn run(args: WatchArgs, json: bool, out: &Output) -> Result<Value, Failure> {
    let mut runs = Runs::open(&args.runs)?;
    match args.serve {
        Some(address) => serve_page(&args, address, runs, out),
        None if json => {
            let views: Vec<RunView> = runs.look().cloned().collect();
            Ok(page::data(&views))
        }
        None if std::io::stdout().is_terminal() => {
            let preemption = Preemption::install()?;
            terminal::show(runs, &|| preemption.requested())?;
            Ok(json!({}))
        }
        None => {
            let message =
                "stdout is not a terminal\nhint: use --serve for a page, or --json for what is known now";
            Err(Failure::new(USAGE, message))
        }
    }
}

fn serve_page(args: &WatchArgs, address: SocketAddr, runs: Runs, out: &Output) -> Result<Value, Failure> {
    let secret = match args.token || !address.ip().is_loopback() {
        true => Some(token().map_err(|e| Failure::new(IO_FAILED, format!("cannot read /dev/urandom: {e}")))?),
        false => None,
    };
    let guard = |at| {
        let guard = Guard::new(at, &args.host_names, secret);
        out.line(&format!("watch: {}", guard.url()));
        guard
    };
    let count = runs.count();
    let mut at = address;
    serve(runs, address, guard, |found| at = found)?;
    Ok(json!({ "address": at.to_string(), "runs": count }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_one_of_the_loopback() {
        assert_eq!(address("8000").unwrap().to_string(), "127.0.0.1:8000");
        assert_eq!(address("[::1]:1").unwrap().to_string(), "[::1]:1");
        assert!(address("node1").is_err() && address("0.0.0.0").is_err());
    }
}
