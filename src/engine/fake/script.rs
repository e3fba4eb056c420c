//! What the commands of the engine in memory do.

use bytes::Bytes;

use super::FakeEngine;
use super::world::Script;
use crate::engine::{Chunk, ExecState};

impl FakeEngine {
    /// What commands with this program answer from now on.
    pub fn script_exec(&self, argv0: &str, stdout: &[u8], stderr: &[u8], code: i32) {
        let script = Script::Ends {
            stdout: Bytes::copy_from_slice(stdout),
            stderr: Bytes::copy_from_slice(stderr),
            code,
        };
        self.lock().scripts.insert(argv0.to_owned(), script);
    }

    /// Lets commands with this program run until they are signalled or their sandbox ends.
    pub fn script_hang(&self, argv0: &str) {
        self.lock().scripts.insert(argv0.to_owned(), Script::Hangs);
    }

    /// As [`FakeEngine::script_hang`], but no signal reaches them.
    pub fn script_deaf(&self, argv0: &str) {
        self.lock().scripts.insert(argv0.to_owned(), Script::Deaf);
    }

    /// Lets commands with this program fail to start, with the engine's word on it as their output.
    pub fn script_no_start(&self, argv0: &str, text: &str, code: i32) {
        let text = Bytes::copy_from_slice(text.as_bytes());
        self.lock().scripts.insert(argv0.to_owned(), Script::NeverStarts { text, code });
    }

    /// As [`FakeEngine::script_hang`], but they have no process until [`FakeEngine::make_processes`].
    pub fn script_slow(&self, argv0: &str) {
        self.lock().scripts.insert(argv0.to_owned(), Script::Slow);
    }

    /// Gives the commands that are being started their processes.
    pub fn make_processes(&self) {
        for exec in self.lock().execs.values_mut() {
            if exec.state == ExecState::Starting {
                exec.state = ExecState::Running;
            }
        }
    }

    /// Lets all commands that hang write this.
    pub fn say(&self, text: &[u8]) {
        let bytes = Bytes::copy_from_slice(text);
        for exec in self.lock().execs.values() {
            if let Some(output) = &exec.ends {
                // Nobody may be left who reads it.
                let _ = output.send(Chunk::Stdout(bytes.clone()));
            }
        }
    }

    /// Lets all commands that hang close their output and live on.
    pub fn close_outputs(&self) {
        self.lock().execs.values_mut().for_each(|exec| exec.ends = None);
    }

    /// Ends all commands that hang, with this code.
    pub fn end_commands(&self, code: i32) {
        self.lock().end_execs(code, |_| true);
    }
}
