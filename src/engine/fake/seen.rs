//! What a test sees of the engine in memory.

use super::FakeEngine;
use crate::engine::{Image, Observed, WindowSize};

impl FakeEngine {
    /// All calls so far, each as its name and what it was about (a container's name where there is one).
    pub fn calls(&self) -> Vec<String> {
        self.lock().calls.clone()
    }

    /// All containers, by id.
    pub fn containers(&self) -> Vec<Observed> {
        self.lock().containers.values().map(|c| c.observed.clone()).collect()
    }

    /// All images, by id.
    pub fn images(&self) -> Vec<Image> {
        self.lock().images.values().map(|i| i.image.clone()).collect()
    }

    /// The size that an exec's terminal has now.
    pub fn exec_size(&self, engine_id: &str) -> Option<WindowSize> {
        self.lock().execs.get(engine_id).and_then(|exec| exec.size)
    }
}
