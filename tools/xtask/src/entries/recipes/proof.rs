//! The proof that RDMA carried the data: the captures of a recipe's processes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::table::Recipe;

/// The content of the captures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// Bytes of payload in the capture that has most, without the packets of the connection
    /// manager.
    pub bytes: u64,
    /// Packets of that capture by opcode.
    pub packets: BTreeMap<String, u64>,
    /// Packets of all captures whose ICRC is right.
    pub right: u64,
    /// Packets of all captures whose ICRC is wrong.
    pub wrong: u64,
}

impl Proof {
    /// Reads all captures of a folder by `urxe decode`.
    pub fn of(folder: &Path, urxe: &Path) -> Result<Self> {
        let mut proof = Self::default();
        for entry in fs::read_dir(folder)? {
            let mut decode = Command::new(urxe);
            decode.args(["decode", "--json"]).arg(entry?.path());
            let mut child = decode.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
            let mut of_file = Self::default();
            let lines = child.stdout.take().map(BufReader::new).context("standard output")?;
            for line in lines.lines() {
                of_file.add(&line?)?;
            }
            ensure!(child.wait()?.success(), "{decode:?} failed");
            proof.right += of_file.right;
            proof.wrong += of_file.wrong;
            let size = |proof: &Self| (proof.bytes, proof.packets.values().sum::<u64>());
            if size(&of_file) > size(&proof) {
                (proof.bytes, proof.packets) = (of_file.bytes, of_file.packets);
            }
        }
        Ok(proof)
    }

    /// Counts a packet, which is a line of `urxe decode --json`.
    fn add(&mut self, line: &str) -> Result<()> {
        let packet: Value = serde_json::from_str(line)?;
        let Some(opcode) = packet["bth"]["name"].as_str() else { return Ok(()) };
        match packet["icrc"]["ok"].as_bool() {
            Some(true) => self.right += 1,
            Some(false) => self.wrong += 1,
            None => {}
        }
        if packet["mad"].is_null() {
            self.bytes += packet["payload_len"].as_u64().unwrap_or_default();
            *self.packets.entry(opcode.to_owned()).or_default() += 1;
        }
        Ok(())
    }

    /// Fails unless the captures have the opcodes and the payload of the recipe.
    pub fn check(&self, recipe: &Recipe) -> Result<()> {
        let missing = recipe
            .opcodes
            .iter()
            .find(|opcode| self.packets.keys().all(|o| !o.starts_with(*opcode)));
        if let Some(opcode) = missing {
            bail!("no capture has a packet {opcode}: {:?}", self.packets);
        }
        if self.bytes < recipe.bytes {
            bail!("the captures have {} bytes of payload, not {}", self.bytes, recipe.bytes);
        }
        let packets: u64 = self.packets.values().sum();
        if packets < recipe.packets {
            bail!("the captures have {packets} packets, not {}", recipe.packets);
        }
        if self.wrong > 0 {
            bail!("the captures have {} packets with a wrong ICRC", self.wrong);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: &str =
        r#"{"bth":{"name":"RC RDMA_WRITE_ONLY"},"payload_len":64,"icrc":{"ok":true}}"#;

    fn proof(lines: &[&str]) -> Proof {
        let mut proof = Proof::default();
        for line in lines {
            proof.add(line).unwrap();
        }
        proof
    }

    #[test]
    fn opcode_bytes_and_icrc_are_checked() {
        let opcodes = vec!["RC RDMA_WRITE".to_owned()];
        let recipe = Recipe { opcodes, bytes: 128, packets: 2, ..Recipe::default() };
        let more = Recipe { packets: 3, ..recipe.clone() };
        let (wrong, send) = (WRITE.replace("true", "false"), WRITE.replace("RDMA_WRITE", "SEND"));
        let mad = WRITE.replace("\"bth\"", "\"mad\":{},\"bth\"");
        assert!(proof(&[WRITE, WRITE]).check(&recipe).is_ok());
        assert!(proof(&[WRITE, WRITE]).check(&more).is_err());
        for lines in [&[WRITE][..], &[WRITE, WRITE, &wrong], &[&send, &send], &[&mad, WRITE]] {
            assert!(proof(lines).check(&recipe).is_err(), "{lines:?}");
        }
    }
}
