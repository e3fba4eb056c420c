/**
 * A small stand-in for the editor: as much of its API as the extension uses, with what was shown kept for tests. The
 * extension itself is checked against the real types.
 */

import { Module } from "node:module";

type Listener<T> = (value: T) => unknown;

class Disposable {
  constructor(private readonly act: () => void) {}
  dispose(): void {
    this.act();
  }
}

class EventEmitter<T> {
  private readonly listeners = new Set<Listener<T>>();
  readonly event = (listener: Listener<T>): Disposable => {
    this.listeners.add(listener);
    return new Disposable(() => this.listeners.delete(listener));
  };
  fire(value: T): void {
    for (const listener of [...this.listeners]) listener(value);
  }
  dispose(): void {
    this.listeners.clear();
  }
}

class ThemeColor {
  constructor(readonly id: string) {}
}

class ThemeIcon {
  constructor(
    readonly id: string,
    readonly color?: ThemeColor,
  ) {}
}

class MarkdownString {
  value = "";
  appendText(text: string): void {
    this.value += text;
  }
  appendMarkdown(text: string): void {
    this.value += text;
  }
}

export class TreeItem {
  id?: string;
  description?: string;
  contextValue?: string;
  iconPath?: ThemeIcon;
  tooltip?: MarkdownString | string;
  command?: { command: string; arguments: unknown[] };
  constructor(
    readonly label: string,
    readonly collapsibleState: number,
  ) {}
}

interface Pty {
  open(dimensions: { columns: number; rows: number } | undefined): void;
  close(): void;
  handleInput(keys: string): void;
  setDimensions(dimensions: { columns: number; rows: number }): void;
  onDidWrite: (listener: Listener<string>) => Disposable;
  onDidClose: (listener: Listener<number | void>) => Disposable;
  onDidChangeName: (listener: Listener<string>) => Disposable;
}

/** A terminal of the editor, as far as a pseudoterminal sees one. */
export class FakeTerminal {
  text = "";
  name: string;
  shown = 0;
  /** Set once it is closed. */
  exitStatus: { code: number | undefined } | undefined;

  constructor(
    readonly options: { name: string; pty: Pty },
    private readonly closed: (terminal: FakeTerminal) => void,
  ) {
    this.name = options.name;
    const { pty } = options;
    pty.onDidWrite((text) => (this.text += text));
    pty.onDidChangeName((name) => (this.name = name));
    pty.onDidClose((code) => this.end(code ?? undefined));
    pty.open({ columns: 100, rows: 30 });
  }

  type(keys: string): void {
    this.options.pty.handleInput(keys);
  }

  show(): void {
    this.shown += 1;
  }

  /** The user closes its tab. */
  dispose(): void {
    this.end(undefined);
  }

  private end(code: number | undefined): void {
    if (this.exitStatus) return;
    this.exitStatus = { code };
    this.options.pty.close();
    this.closed(this);
  }
}

interface Message {
  text: string;
  detail?: string;
  buttons: string[];
}

interface PickItem {
  label: string;
}

/** The editor: what it shows, and what its user answers. */
export class Editor {
  readonly settings = new Map<string, unknown>();
  readonly context = new Map<string, unknown>();
  readonly commands = new Map<string, (...args: unknown[]) => unknown>();
  readonly terminals: FakeTerminal[] = [];
  readonly messages: Message[] = [];
  readonly progress: { title: string; steps: string[]; token: { cancel(): void } }[] = [];
  readonly documents: string[] = [];
  readonly asked: string[] = [];
  readonly statusItem = {
    text: "",
    tooltip: "",
    command: "",
    visible: false,
    backgroundColor: undefined as ThemeColor | undefined,
  };
  clipboard = "";
  folders: { name: string; uri: { scheme: string; fsPath: string } }[] = [];
  tree!: { getChildren(node?: unknown): Promise<unknown[]>; getTreeItem(node: unknown): TreeItem };
  view = {
    visible: false,
    message: undefined as string | undefined,
    badge: undefined as { value: number } | undefined,
  };
  /** What the user answers next: text for an input, a label for a list, a button for a message. Undefined is Escape. */
  readonly answers: (string | undefined)[] = [];
  profile:
    { provideTerminalProfile(): Promise<{ options: { name: string; pty: Pty } } | undefined> } | undefined;
  /** What the editor keeps for the extension. */
  readonly memory = new Map<string, unknown>();
  private readonly configuration = new EventEmitter<{ affectsConfiguration(name: string): boolean }>();
  private readonly visibility = new EventEmitter<{ visible: boolean }>();
  private readonly terminalClosed = new EventEmitter<FakeTerminal>();
  private provider: { provideTextDocumentContent(uri: unknown): Promise<string> } | undefined;

  /** Shows the view of sessions. */
  look(): void {
    this.view.visible = true;
    this.visibility.fire({ visible: true });
  }

  /** Changes a setting, as in the settings of the editor. */
  set(name: string, value: unknown): void {
    this.settings.set(name, value);
    this.configuration.fire({
      affectsConfiguration: (section) => section === name || name.startsWith(`${section}.`),
    });
  }

  /** What an extension is activated with. */
  activation(): { subscriptions: { dispose(): void }[]; globalState: object } {
    const globalState = {
      get: (name: string) => this.memory.get(name),
      update: async (name: string, value: unknown) => void this.memory.set(name, value),
    };
    return { subscriptions: [], globalState };
  }

  async run(command: string, ...args: unknown[]): Promise<unknown> {
    const act = this.commands.get(command);
    if (!act) throw new Error(`no command ${command}`);
    return await act(...args);
  }

  terminal(name: string): FakeTerminal | undefined {
    return this.terminals.find((terminal) => terminal.options.name === name && !terminal.exitStatus);
  }

  /** The items of the view, by label. */
  async items(parent?: unknown): Promise<Map<string, { node: unknown; item: TreeItem }>> {
    const nodes = await this.tree.getChildren(parent);
    return new Map(
      nodes.map((node) => [this.tree.getTreeItem(node).label, { node, item: this.tree.getTreeItem(node) }]),
    );
  }

  /** Loads the bundled extension, to which this is the editor. */
  load(path: string): { activate(context: unknown): void } {
    const loader = Module as unknown as { _load: (name: string, ...rest: unknown[]) => unknown };
    const before = loader._load;
    loader._load = (name, ...rest) => (name === "vscode" ? this.api() : before(name, ...rest));
    try {
      delete require.cache[require.resolve(path)];
      return require(path) as { activate(context: unknown): void };
    } finally {
      loader._load = before;
    }
  }

  private answer(question: string): string | undefined {
    this.asked.push(question);
    return this.answers.shift();
  }

  private message(text: string, ...rest: unknown[]): Promise<string | undefined> {
    const options = typeof rest[0] === "object" ? (rest.shift() as { detail?: string }) : {};
    const buttons = rest as string[];
    this.messages.push({ text, detail: options.detail, buttons });
    const wanted =
      buttons.length > 0 && buttons.includes(this.answers[0] ?? "") ? this.answers.shift() : undefined;
    return Promise.resolve(wanted);
  }

  private api(): object {
    const message = (text: string, ...rest: unknown[]) => this.message(text, ...rest);
    return {
      EventEmitter,
      ThemeColor,
      ThemeIcon,
      MarkdownString,
      TreeItem,
      TerminalProfile: class {
        constructor(readonly options: unknown) {}
      },
      TreeItemCollapsibleState: { None: 0, Collapsed: 1, Expanded: 2 },
      StatusBarAlignment: { Left: 1, Right: 2 },
      ProgressLocation: { Notification: 15 },
      Uri: { from: (parts: object) => parts },
      env: { clipboard: { writeText: async (text: string) => void (this.clipboard = text) } },
      commands: {
        registerCommand: (name: string, act: () => unknown) => {
          this.commands.set(name, act);
          return new Disposable(() => this.commands.delete(name));
        },
        executeCommand: async (name: string, ...args: unknown[]) =>
          name === "setContext"
            ? void this.context.set(args[0] as string, args[1])
            : await this.run(name, ...args),
      },
      workspace: {
        workspaceFolders: this.folders,
        getConfiguration: (section: string) => ({
          get: (name: string, otherwise: unknown) => this.settings.get(`${section}.${name}`) ?? otherwise,
        }),
        onDidChangeConfiguration: this.configuration.event,
        registerTextDocumentContentProvider: (_scheme: string, provider: never) => {
          this.provider = provider;
          return new Disposable(() => undefined);
        },
        openTextDocument: async (uri: unknown) => await this.provider?.provideTextDocumentContent(uri),
      },
      window: this.windows(message),
    };
  }

  private windows(message: (text: string, ...rest: unknown[]) => unknown): object {
    return {
      createOutputChannel: () => ({
        info: () => undefined,
        warn: () => undefined,
        show: () => undefined,
        dispose: () => undefined,
      }),
      createTreeView: (_id: string, options: { treeDataProvider: never }) => {
        this.tree = options.treeDataProvider;
        return Object.assign(this.view, {
          onDidChangeVisibility: this.visibility.event,
          dispose: () => undefined,
        });
      },
      createStatusBarItem: () =>
        Object.assign(this.statusItem, {
          show: () => (this.statusItem.visible = true),
          hide: () => (this.statusItem.visible = false),
          dispose: () => undefined,
        }),
      registerTerminalProfileProvider: (_id: string, provider: never) => {
        this.profile = provider;
        return new Disposable(() => undefined);
      },
      onDidCloseTerminal: this.terminalClosed.event,
      createTerminal: (options: never) => {
        const terminal = new FakeTerminal(options, (closed) => this.terminalClosed.fire(closed));
        this.terminals.push(terminal);
        return terminal;
      },
      showErrorMessage: message,
      showWarningMessage: message,
      showInformationMessage: message,
      showInputBox: async (options: {
        prompt: string;
        validateInput?: (text: string) => string | undefined;
      }) => {
        const text = this.answer(options.prompt);
        const wrong = text === undefined ? undefined : options.validateInput?.(text);
        if (wrong) throw new Error(`the editor would not take ${text}: ${wrong}`);
        return text;
      },
      showQuickPick: async (items: PickItem[], options: { placeHolder: string }) => {
        const label = this.answer(options.placeHolder);
        const item = items.find((one) => one.label === label);
        if (label !== undefined && !item)
          throw new Error(`${label} is none of ${items.map((one) => one.label).join(", ")}`);
        return item;
      },
      showTextDocument: async (text: string) => void this.documents.push(text),
      withProgress: async (
        { title }: { title: string },
        work: (progress: object, token: object) => Promise<unknown>,
      ): Promise<unknown> => {
        const cancelled = new EventEmitter<void>();
        const token = { isCancellationRequested: false, onCancellationRequested: cancelled.event };
        const steps: string[] = [];
        const cancel = () => {
          token.isCancellationRequested = true;
          cancelled.fire();
        };
        this.progress.push({ title, steps, token: { cancel } });
        return await work({ report: ({ message: step }: { message: string }) => steps.push(step) }, token);
      },
    };
  }
}
