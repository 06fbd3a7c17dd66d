// The language status, beside the language mode: the state of the server and its engine, and the engine's figures.
import {
  commands,
  Disposable,
  EventEmitter,
  type LanguageStatusItem,
  LanguageStatusSeverity,
  languages,
  window,
  workspace,
} from "vscode";
import { DOCUMENTS } from "./documents";
import { isEnabled, SECTION } from "./settings";
import {
  describe,
  describeFigures,
  type EngineStatus,
  type ServerState,
  type StatusText,
} from "./statusText";

const SEVERITY = {
  information: LanguageStatusSeverity.Information,
  warning: LanguageStatusSeverity.Warning,
  error: LanguageStatusSeverity.Error,
};

/** What comes with each key is shown so much later, all of it at once: no text that is to be seen waits behind it. */
const SHOWN_AFTER_MS = 200;

export class Status implements Disposable {
  private readonly item = languages.createLanguageStatusItem("dflash.status", DOCUMENTS);
  /** In a line of their own, while there are some: beside a pair's name and a reason there is no room. */
  private figures: LanguageStatusItem | undefined;
  private readonly changes = new EventEmitter<void>();
  readonly onDidChange = this.changes.event;
  private readonly listening: Disposable;
  private server: ServerState = { kind: "starting" };
  private said: EngineStatus | undefined;
  private busy = false;
  private snoozedUntil: Date | undefined;
  private readonly contexts = new Map<string, boolean>();
  private waking: NodeJS.Timeout | undefined;
  private pending: NodeJS.Timeout | undefined;
  private shown = "";

  constructor() {
    this.item.name = "DFlash";
    this.listening = Disposable.from(
      window.onDidChangeActiveTextEditor(() => this.show()),
      workspace.onDidChangeConfiguration((event) => event.affectsConfiguration(SECTION) && this.show()),
    );
    this.show();
  }

  /** What the engine said last, while a server runs. */
  get engine(): EngineStatus | undefined {
    return this.said;
  }

  get text(): string {
    const { text, detail } = this.described();
    return [text, detail].filter(Boolean).join(" - ");
  }

  /** A new state of the server itself: what its engine said before no longer holds. */
  setServer(state: ServerState): void {
    this.server = state;
    this.said = undefined;
    this.busy = false;
    this.show();
  }

  /** The server answers; what its engine has said by now stays. */
  setRunning(): void {
    this.server = { kind: "running" };
    this.show();
  }

  setEngine(status: EngineStatus): void {
    const isAnother = this.said?.state !== status.state;
    this.said = status;
    if (isAnother) this.show();
    else this.showSoon();
  }

  setBusy(busy: boolean): void {
    this.busy = busy;
    this.showSoon();
  }

  /** A completion was accepted, or a part of one: the last step of the walkthrough. */
  setAccepted(): void {
    this.tell("dflash.accepted", true);
  }

  /** No completions for so long; 0 ends it. */
  setSnooze(minutes: number): void {
    clearTimeout(this.waking);
    this.snoozedUntil = minutes > 0 ? new Date(Date.now() + minutes * 60_000) : undefined;
    if (this.snoozedUntil) this.waking = setTimeout(() => this.setSnooze(0), minutes * 60_000);
    this.show();
  }

  dispose(): void {
    clearTimeout(this.waking);
    clearTimeout(this.pending);
    this.listening.dispose();
    this.changes.dispose();
    this.item.dispose();
    this.figures?.dispose();
  }

  private showSoon(): void {
    this.pending ??= setTimeout(() => this.show(), SHOWN_AFTER_MS);
  }

  private described(): StatusText {
    const document = window.activeTextEditor?.document;
    const off = document && !isEnabled(workspace.getConfiguration(SECTION, document));
    return describe({
      server: this.server,
      engine: this.said,
      busy: this.busy,
      offFor: off ? document.languageId : undefined,
      snoozedUntil: this.snoozedUntil,
    });
  }

  private show(): void {
    clearTimeout(this.pending);
    this.pending = undefined;
    this.tell("dflash.running", this.server.kind === "running");
    this.tell("dflash.ready", this.said?.state === "ready" || this.said?.state === "degraded");
    this.changes.fire();
    this.showFigures();
    const said = this.described();
    // Each property that is set is a message to the editor, changed or not.
    const shown = JSON.stringify(said);
    if (this.shown === shown) return;
    this.shown = shown;
    this.item.text = said.text;
    this.item.detail = said.detail;
    this.item.severity = SEVERITY[said.severity];
    this.item.busy = said.busy;
    this.item.command = said.action;
  }

  private showFigures(): void {
    const figures = describeFigures(this.said);
    const said = figures && `DFlash: ${figures}`;
    if (said === undefined) {
      this.figures?.dispose();
      this.figures = undefined;
    } else if (this.figures?.text !== said) {
      this.figures ??= languages.createLanguageStatusItem("dflash.figures", DOCUMENTS);
      this.figures.name = "DFlash: figures";
      this.figures.text = said;
    }
  }

  /** The steps of the walkthrough are done by what is so, however it came about. */
  private tell(context: string, holds: boolean): void {
    if ((this.contexts.get(context) ?? false) === holds) return;
    this.contexts.set(context, holds);
    void commands.executeCommand("setContext", context, holds);
  }
}
