//! The protocol's side: what the server says of itself and its tools, and calls of them.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rmcp::model::{
    CallToolRequestMethod, CallToolRequestParams, CallToolResponse, CallToolResult, ConstString,
    ContentBlock, CustomRequest, CustomResult, ErrorCode, ErrorData, Implementation, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities, ServerConfig, Tool as Description,
    ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval_at, sleep};

use super::call::Caller;
use super::input::Over;
use super::leave::Leaving;
use super::schema::Document;
use super::tools::{Effect, TOOLS, Tool};
use crate::cli::failure::Failure;
use crate::client::Progress;
use crate::proto::version::VERSION;

/// How often whoever waits for a call hears that it goes on. Clients give up on what is silent for a minute.
const TICK: Duration = Duration::from_secs(5);

/// How long a command may still take when the client has closed its side: whoever pipes a call in gets its answer, and clients
/// kill a server that is still there after two seconds.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Most words of progress that wait to be sent; more are dropped, since newer ones say more.
const MAX_PROGRESS: usize = 16;

/// Longest name of a client that the daemon is told.
const MAX_NAME_CHARS: usize = 40;

const INSTRUCTIONS: &str = "\
abx runs coding agents and commands in named, persistent sandboxes (sessions). session_list shows what is there. \
session_start makes one, exec_run runs a command in it, file_read and file_write reach its files, session_save keeps \
its files as a snapshot, session_resume brings a stopped or saved session back, session_fork copies one. Sessions \
belong to the user, who may work in them at the same time: delete only those that you made, unless you are asked to. \
Errors are JSON with a stable data.kind and, where there is something to do, data.hint.";

/// The server.
#[derive(Clone)]
pub(super) struct Server {
    caller: Caller,
    tools: Arc<Vec<(&'static Tool, Description)>>,
    over: Over,
}

impl Server {
    /// With all tools, or only those that change nothing. `over` is heard when no more comes from the client.
    pub(super) fn new(caller: Caller, read_only: bool, over: Over) -> Self {
        let document = Document::read();
        let offered = TOOLS.iter().filter(|tool| !read_only || tool.effect == Effect::Reads);
        let tools = offered.map(|tool| (tool, describe(&document, tool, caller.hidden()))).collect();
        Self { caller, tools: Arc::new(tools), over }
    }

    fn find(&self, name: &str) -> Option<&(&'static Tool, Description)> {
        self.tools.iter().find(|(tool, _)| tool.name == name)
    }

    /// Waits until nobody waits for a command any more.
    async fn leave(&self) {
        self.over.clone().wait().await;
        sleep(LAST_WAIT).await;
    }

    async fn perform(
        &self,
        tool: &'static Tool,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let mut caller = self.caller.clone();
        if let Some(client) = context.client_info() {
            let name: String = client.name.chars().take(MAX_NAME_CHARS).collect();
            caller.connector = caller.connector.calling_itself(format!("abx mcp ({name})"));
        }
        let (tell, mut told) = mpsc::channel(MAX_PROGRESS);
        // Ends the call where this future is dropped, or its client no longer wants the answer.
        let (waiting, leaving) = Leaving::new();
        let arguments = request.arguments.unwrap_or_default();
        let mut call = spawn_blocking(move || {
            caller.perform(tool, arguments, &leaving, Box::new(move |progress| drop(tell.try_send(progress))))
        });
        let mut reporter = Reporter::new(&context, tool);
        let mut tick = interval_at(tokio::time::Instant::now() + TICK, TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut leave = pin!(self.leave());
        let result = loop {
            tokio::select! {
                result = &mut call => break result,
                Some(progress) = told.recv() => reporter.report(&progress).await,
                _ = tick.tick() => reporter.report(&Progress::default()).await,
                () = context.ct.cancelled() => {
                    drop(waiting);
                    return failed(&Failure::refused("cancelled"));
                }
                () = &mut leave, if tool.lasts() => {
                    drop(waiting);
                    return failed(&Failure::refused("the client has closed its side"));
                }
            }
        };
        match result {
            Ok(Ok(document)) => {
                let document = Value::Object(document);
                let mut result = CallToolResult::success(vec![ContentBlock::text(document.to_string())]);
                result.structured_content = Some(document);
                result
            }
            Ok(Err(failure)) => failed(&failure),
            Err(error) => failed(&Failure::local("the call broke off", &error)),
        }
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let mut about = Implementation::new("abx", VERSION);
        about.title = Some("abx: sandboxes for coding agents".to_owned());
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(about)
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.iter().map(|(_, tool)| tool.clone()).collect()))
    }

    fn get_tool(&self, name: &str) -> Option<Description> {
        self.find(name).map(|(_, tool)| tool.clone())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some((tool, _)) = self.find(&request.name) else {
            return Err(ErrorData::invalid_params(format!("no tool {:?}", request.name), None));
        };
        Ok(self.perform(tool, request, context).await.into())
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        // One of the protocol's own comes here where its params are not what they should be.
        if request.method == CallToolRequestMethod::VALUE {
            let text = "Invalid params: expected the name of a tool, and its arguments as an object";
            return Err(ErrorData::invalid_params(text, None));
        }
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None))
    }
}

/// Tells a client that wants to know how a call goes on.
struct Reporter<'a> {
    context: &'a RequestContext<RoleServer>,
    begun: Instant,
    /// What was told last.
    text: String,
}

impl<'a> Reporter<'a> {
    fn new(context: &'a RequestContext<RoleServer>, tool: &Tool) -> Self {
        Self { context, begun: Instant::now(), text: tool.title.to_owned() }
    }

    /// Seconds are what grows, as it has to: bytes of a second step begin at zero again.
    async fn report(&mut self, progress: &Progress) {
        let Some(token) = self.context.meta.get_progress_token() else { return };
        if !progress.text.is_empty() {
            self.text.clone_from(&progress.text);
        }
        let bytes = match (progress.current_bytes, progress.total_bytes) {
            (Some(current), Some(total)) => format!(": {current} of {total} bytes"),
            _ => String::new(),
        };
        let words = format!("{}{bytes}", self.text);
        let told =
            ProgressNotificationParam::new(token, self.begun.elapsed().as_secs_f64()).with_message(words);
        // A client that has gone gets no answer either.
        let _ = self.context.peer.notify_progress(told).await;
    }
}

/// A failure of the tool is a result, so that the model reads it.
fn failed(failure: &Failure) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(failure.document_with_hint())])
}

fn describe(document: &Document, tool: &Tool, hidden: &[&str]) -> Description {
    Description::new(tool.name, document.words(tool), Arc::new(document.input(tool, hidden)))
        .with_title(tool.title)
        .with_raw_output_schema(Arc::new(document.output(tool)))
        .with_annotations(annotations(tool))
}

fn annotations(tool: &Tool) -> ToolAnnotations {
    let effect = tool.effect;
    ToolAnnotations::with_title(tool.title)
        .read_only(effect == Effect::Reads)
        .destructive(matches!(effect, Effect::Destroys | Effect::DestroysOnce))
        .idempotent(matches!(effect, Effect::Reads | Effect::AddsOnce | Effect::DestroysOnce))
        .open_world(tool.open_world)
}
