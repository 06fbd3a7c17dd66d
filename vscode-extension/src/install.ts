// Installs the server into an environment of the extension's own, before the user's eyes.
import { type LogOutputChannel, ProgressLocation, window, workspace } from "vscode";
import { createEnvironment, findPython } from "./environment";
import { readSettings, SECTION } from "./settings";

/** Whether an environment with the server was made; a failure has been told in one message. */
export async function installServer(folder: string, log: LogOutputChannel): Promise<boolean> {
  const what = readSettings(workspace.getConfiguration(SECTION)).package || "dflash-lsp";
  const python = await findPython();
  if (!python) {
    failed("no Python 3.11 or later with venv and pip is in PATH", log);
    return false;
  }
  log.info(`Installing ${what} with ${python}`);
  try {
    await window.withProgress(
      { location: ProgressLocation.Notification, title: "DFlash: installing the server", cancellable: true },
      async (progress, token) => {
        const ending = new AbortController();
        token.onCancellationRequested(() => ending.abort());
        progress.report({ message: "making an environment" });
        const say = (line: string) => {
          log.info(line);
          if (/^(Processing|Collecting|Downloading|Installing)/.test(line)) {
            progress.report({ message: line.slice(0, 60) });
          }
        };
        await createEnvironment(folder, python, what, say, ending.signal);
      },
    );
  } catch (error) {
    failed(error instanceof Error ? error.message : String(error), log);
    return false;
  }
  log.info("The server is installed");
  return true;
}

function failed(reason: string, log: LogOutputChannel): void {
  log.error(`The server was not installed: ${reason}`);
  void window
    .showErrorMessage(`DFlash: the server was not installed: ${reason}`, "Show Logs")
    .then((choice) => choice && log.show());
}
