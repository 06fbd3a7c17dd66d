// Activation: puts the parts together and starts the server in the background.
import { type ExtensionContext, version, window, workspace } from "vscode";
import { registerCommands } from "./commands";
import { canGrow } from "./editorVersion";
import { Provider } from "./provider";
import { Server } from "./server";
import { isNeeded, RESTART_ON, SECTION } from "./settings";
import { Status } from "./status";
import { StatusPage } from "./statusPage";

let server: Server | undefined;

export function activate(context: ExtensionContext): void {
  const begun = performance.now();
  const log = window.createOutputChannel("DFlash", { log: true });
  const trace = window.createOutputChannel("DFlash Trace", { log: true });
  const status = new Status();
  const running = new Server(context.globalStorageUri.fsPath, log, trace, status);
  server = running;
  const provider = new Provider(
    running,
    context.extension.id,
    () => canGrow(version) && workspace.getConfiguration(SECTION).get("streaming") !== false,
    (busy) => status.setBusy(busy),
  );
  const page = new StatusPage(running, status);
  let isWanted = isNeeded(workspace.getConfiguration(SECTION));
  context.subscriptions.push(
    log,
    trace,
    status,
    running,
    provider,
    page,
    ...registerCommands({ context, server: running, provider, status, page, log }),
    running.onEnding(() => provider.stop()),
    workspace.onDidChangeConfiguration((event) => {
      if (!event.affectsConfiguration(SECTION)) return;
      log.info("The settings have changed");
      const wanted = isNeeded(workspace.getConfiguration(SECTION));
      if (wanted !== isWanted || RESTART_ON.some((key) => event.affectsConfiguration(key))) {
        isWanted = wanted;
        void running.restart({ asked: true });
      }
    }),
    // The active Python environment becomes a place to look.
    workspace.onDidGrantWorkspaceTrust(() => {
      if (!running.running) void running.restart();
    }),
  );
  void running.restart();
  log.info(`Activated in ${(performance.now() - begun).toFixed(0)} ms`);
}

export async function deactivate(): Promise<void> {
  await server?.shutdown();
}
