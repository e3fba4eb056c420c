//! The clients under `clients/`: their own tests, with the programs of this run, a live daemon and a real engine.

mod editors;
mod mcp;
mod python;
mod vscode;
