// Drives the server with the protocol layer of VS Code's own client: its framing, its JSON-RPC and its types.
// The client on top of it (vscode-languageclient) runs only inside of VS Code; `make e2e` is for that.
//
//   node vscode_client.cjs NODE_MODULES OPTIONS-JSON -- SERVER COMMAND...
//
// Prints one JSON object: what the server answered.
"use strict";

const { spawn } = require("node:child_process");
const path = require("node:path");

const [modules, options, , ...command] = process.argv.slice(2);
const lsp = require(require.resolve("vscode-languageserver-protocol/node", { paths: [path.resolve(modules)] }));

const URI = "file:///work/a.py";
const found = { statuses: [], progress: [], complaints: [] };

async function codeOf(promise) {
  try {
    await promise;
    return 0;
  } catch (error) {
    return error.code;
  }
}

function at(line, character) {
  return { textDocument: { uri: URI }, position: { line, character } };
}

async function main() {
  const server = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
  const exited = new Promise((resolve) => server.on("exit", (code) => resolve(code)));
  const connection = lsp.createProtocolConnection(
    new lsp.StreamMessageReader(server.stdout),
    new lsp.StreamMessageWriter(server.stdin),
    { error: (m) => found.complaints.push(m), warn: (m) => found.complaints.push(m), info() {}, log() {} },
  );
  connection.onError((error) => found.complaints.push(String(error)));
  connection.onNotification("dflash/status", (status) => found.statuses.push(status.state));
  connection.onRequest(lsp.ConfigurationRequest.type, (params) => params.items.map(() => null));
  connection.listen();

  const inline = { ...at(0, 8), context: { triggerKind: lsp.InlineCompletionTriggerKind.Automatic } };
  found.early = await codeOf(connection.sendRequest(lsp.InlineCompletionRequest.type, inline));
  const initialized = await connection.sendRequest(lsp.InitializeRequest.type, {
    processId: process.pid,
    rootUri: null,
    workspaceFolders: [{ uri: "file:///work", name: "work" }],
    capabilities: {
      general: { positionEncodings: ["utf-16"] },
      textDocument: { inlineCompletion: { dynamicRegistration: true } },
      workspace: { configuration: true, workspaceFolders: true },
    },
    initializationOptions: JSON.parse(options),
  });
  found.capabilities = initialized.capabilities;
  await connection.sendNotification(lsp.InitializedNotification.type, {});
  while (!found.statuses.includes("ready")) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await connection.sendNotification(lsp.DidOpenTextDocumentNotification.type, {
    textDocument: { uri: URI, languageId: "python", version: 1, text: "short" },
  });
  await connection.sendNotification(lsp.DidChangeTextDocumentNotification.type, {
    textDocument: { uri: URI, version: 2 },
    contentChanges: [{ range: { start: { line: 0, character: 5 }, end: { line: 0, character: 5 } }, text: " = " }],
  });
  found.inline = await connection.sendRequest(lsp.InlineCompletionRequest.type, inline);
  await connection.sendRequest(lsp.ExecuteCommandRequest.type, found.inline.items[0].command);
  found.unknown = await codeOf(connection.sendRequest("no/such"));

  await connection.sendNotification(lsp.DidChangeTextDocumentNotification.type, {
    textDocument: { uri: URI, version: 3 },
    contentChanges: [{ text: "def endless():\n" }],
  });
  const source = new lsp.CancellationTokenSource();
  const endless = { ...at(1, 0), context: inline.context };
  const cancelled = codeOf(connection.sendRequest(lsp.InlineCompletionRequest.type, endless, source.token));
  setTimeout(() => source.cancel(), 100);
  found.cancelled = await cancelled;

  await connection.sendRequest(lsp.ShutdownRequest.type);
  found.late = await codeOf(connection.sendRequest(lsp.InlineCompletionRequest.type, inline));
  await connection.sendNotification(lsp.ExitNotification.type);
  found.exit = await exited;
  connection.dispose();
  process.stdout.write(JSON.stringify(found));
}

main().then(
  () => process.exit(0),
  (error) => {
    process.stderr.write(`${error.stack}\n`);
    process.exit(1);
  },
);
