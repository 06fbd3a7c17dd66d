// Runs one asynchronous action at a time, however often it is asked for.

/**
 * Returns a function that runs `action`; calls made while it runs share one further run, which starts when it has
 * ended. So the last call is always followed by a run that saw its state, and a burst of calls costs two runs.
 */
export function serialised(action: () => Promise<void>): () => Promise<void> {
  let running: Promise<void> | undefined;
  let queued: Promise<void> | undefined;
  const run = (): Promise<void> => {
    running = action().finally(() => {
      running = undefined;
    });
    return running;
  };
  return () => {
    if (!running) return run();
    queued ??= running
      .catch(() => undefined)
      .then(() => {
        queued = undefined;
        return run();
      });
    return queued;
  };
}
