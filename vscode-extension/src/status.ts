// The language status item: the state of the server and its engine, beside the language mode.
import { type Disposable, LanguageStatusSeverity, languages } from "vscode";
import { DOCUMENTS } from "./documents";
import {
  describeEngine,
  describeServer,
  type EngineStatus,
  type ServerState,
  type StatusText,
} from "./statusText";

const SEVERITY = {
  information: LanguageStatusSeverity.Information,
  warning: LanguageStatusSeverity.Warning,
  error: LanguageStatusSeverity.Error,
};

export class Status implements Disposable {
  private readonly item = languages.createLanguageStatusItem("dflash.status", DOCUMENTS);
  private server: ServerState = { kind: "starting" };
  private engine: EngineStatus | undefined;
  private busy = false;

  constructor() {
    this.item.name = "DFlash";
    this.item.command = { command: "dflash.showLogs", title: "Show logs" };
    this.show();
  }

  /** A new state of the server itself: what its engine said before no longer holds. */
  setServer(state: ServerState): void {
    this.server = state;
    this.engine = undefined;
    this.busy = false;
    this.show();
  }

  /** The server answers; what its engine has said by now stays. */
  setRunning(): void {
    this.server = { kind: "running" };
    this.show();
  }

  setEngine(status: EngineStatus): void {
    this.engine = status;
    this.show();
  }

  setBusy(busy: boolean): void {
    this.busy = busy;
    this.show();
  }

  dispose(): void {
    this.item.dispose();
  }

  private show(): void {
    const said: StatusText = this.engine
      ? describeEngine(this.engine, this.busy)
      : describeServer(this.server);
    this.item.text = said.text;
    this.item.detail = said.detail;
    this.item.severity = SEVERITY[said.severity];
    this.item.busy = said.busy;
  }
}
