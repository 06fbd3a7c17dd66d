// Activation: puts the parts together and starts the server in the background.
import { type ExtensionContext, window, workspace } from "vscode";
import { registerCommands } from "./commands";
import { Server } from "./server";
import { RESTART_ON } from "./settings";
import { Status } from "./status";

let server: Server | undefined;

export function activate(context: ExtensionContext): void {
  const log = window.createOutputChannel("DFlash", { log: true });
  const status = new Status();
  server = new Server(context.globalStorageUri.fsPath, log, status);
  context.subscriptions.push(
    log,
    status,
    ...registerCommands(server, log),
    workspace.onDidChangeConfiguration((event) => {
      if (RESTART_ON.some((key) => event.affectsConfiguration(key))) void server?.restart();
    }),
    // The active Python environment becomes a place to look.
    workspace.onDidGrantWorkspaceTrust(() => {
      if (!server?.running) void server?.restart();
    }),
  );
  void server.restart();
}

export async function deactivate(): Promise<void> {
  await server?.shutdown();
}
