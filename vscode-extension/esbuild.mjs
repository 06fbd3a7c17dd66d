// Bundles the extension into dist/, or with --tests its unit tests into out/tests.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { build } from "esbuild";

const common = { bundle: true, platform: "node", format: "cjs", target: "node20", logLevel: "warning" };

if (process.argv.includes("--tests")) {
  const tests = readdirSync("tests").filter((name) => name.endsWith(".test.ts"));
  await build({
    ...common,
    entryPoints: tests.map((name) => join("tests", name)),
    outdir: "out/tests",
    alias: { vscode: "./tests/fakeHost.ts" },
  });
} else {
  // Names stay as written, so that a stack trace in a report can be read without a source map.
  const { metafile } = await build({
    ...common,
    entryPoints: ["src/extension.ts"],
    outfile: "dist/extension.js",
    external: ["vscode"],
    minifySyntax: true,
    minifyWhitespace: true,
    metafile: true,
  });
  writeFileSync("dist/THIRD-PARTY-NOTICES.txt", notices(Object.keys(metafile.inputs)));
}

/** The licences of the packages whose files are in the bundle; they ask to be passed on with it. */
function notices(inputs) {
  const folders = new Set();
  for (const input of inputs) {
    const found = input.match(/^.*node_modules\/(@[^/]+\/)?[^/]+/);
    if (found) folders.add(found[0]);
  }
  const sections = [...folders].sort().map((folder) => {
    const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
    if (!file) throw new Error(`${name} ${version} ships no licence text (${dirname(folder)})`);
    return `${name} ${version} (${license})\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
  });
  return `The extension contains code of these packages.\n\n${sections.join(`\n${"-".repeat(80)}\n\n`)}`;
}
