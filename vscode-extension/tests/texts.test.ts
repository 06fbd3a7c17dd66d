import assert from "node:assert/strict";
import { test } from "node:test";
import { debugInformation } from "../src/debugInformation";
import { canGrow } from "../src/editorVersion";

test("growth is shown from the version on that can be told which provider to ask", () => {
  for (const version of ["1.106.0", "1.139.1", "1.106.0-insider", "2.0.0"])
    assert.equal(canGrow(version), true, version);
  for (const version of ["1.91.0", "1.105.1", "0.200.0", "", "x"])
    assert.equal(canGrow(version), false, version);
});

test("debug information does not name the user", () => {
  const facts = {
    settings: { "server.command": "/home/ada/bin/dflash-lsp" },
    server: "/home/ada/x",
    starts: 1,
  };
  const text = debugInformation(facts as never, "/home/ada");
  assert.ok(text.includes("~/bin/dflash-lsp"));
  assert.ok(!text.includes("ada"));
});
