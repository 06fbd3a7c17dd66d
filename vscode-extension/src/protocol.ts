// What the server offers beyond the standard protocol, as typed requests.
import {
  CancellationTokenSource,
  type LanguageClient,
  ProgressType,
  RequestType,
} from "vscode-languageclient/node";

interface RawPosition {
  readonly line: number;
  readonly character: number;
}

/** An item as the server sends it. */
export interface RawItem {
  readonly insertText: string;
  readonly range: { readonly start: RawPosition; readonly end: RawPosition };
  readonly command?: { title: string; command: string; arguments?: unknown[] };
}

export interface CompletionRequest extends RawPosition {
  readonly uri: string;
  readonly invoked: boolean;
}

/** The server as the completions need it. */
export interface CompletionServer {
  readonly running: boolean;
  /** All items, none where there is nothing; `grown` hears of growth. Never rejects, for there is a key for each. */
  complete(
    request: CompletionRequest,
    grown: ((items: readonly RawItem[]) => void) | undefined,
    signal: AbortSignal,
  ): Promise<readonly RawItem[]>;
  shown(item: RawItem): void;
  partlyAccepted(item: RawItem, units: number): void;
}

interface RawList {
  readonly items: readonly RawItem[];
}

const STREAM = new RequestType<object, RawList | null, void>("dflash/inlineCompletion");
const GROWTH = new ProgressType<RawList>();

let tokens = 0;

/** One `dflash/inlineCompletion`. Rejects where the server refuses, and where the signal ends it. */
export async function requestCompletion(
  client: LanguageClient,
  request: CompletionRequest,
  grown: ((items: readonly RawItem[]) => void) | undefined,
  signal: AbortSignal,
): Promise<readonly RawItem[]> {
  const partialResultToken = grown && `dflash-${++tokens}`;
  const listening =
    partialResultToken && client.onProgress(GROWTH, partialResultToken, ({ items }) => grown(items));
  const cancellation = new CancellationTokenSource();
  const cancel = () => cancellation.cancel();
  signal.addEventListener("abort", cancel);
  try {
    const answer = await client.sendRequest(
      STREAM,
      {
        textDocument: { uri: request.uri },
        position: { line: request.line, character: request.character },
        context: { triggerKind: request.invoked ? 1 : 2 },
        partialResultToken,
      },
      cancellation.token,
    );
    return answer?.items ?? [];
  } finally {
    signal.removeEventListener("abort", cancel);
    cancellation.dispose();
    if (listening) listening.dispose();
  }
}
