// The extension's commands.
import {
  ConfigurationTarget,
  commands,
  type Disposable,
  type LogOutputChannel,
  window,
  workspace,
} from "vscode";
import type { Server } from "./server";
import { readSettings, SECTION } from "./settings";

export function registerCommands(server: Server, log: LogOutputChannel): Disposable[] {
  return [
    commands.registerCommand("dflash.restart", () => server.restart({ asked: true })),
    commands.registerCommand("dflash.showLogs", () => log.show()),
    commands.registerCommand("dflash.enable", () => setEnabled(true)),
    commands.registerCommand("dflash.disable", () => setEnabled(false)),
  ];
}

async function setEnabled(enable: boolean): Promise<void> {
  await workspace.getConfiguration(SECTION).update("enable", enable, ConfigurationTarget.Global);
  if (enable && !readSettings(workspace.getConfiguration(SECTION)).enable) {
    void window.showInformationMessage("DFlash: the settings of this workspace turn completions off.");
  }
}
