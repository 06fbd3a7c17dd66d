// Which documents the server is told of, and the status item stands beside.
export const DOCUMENTS = [{ scheme: "file" }, { scheme: "untitled" }];
