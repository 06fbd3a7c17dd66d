-- For `vim.lsp.enable("dflash")` (Neovim 0.12): our completions in Neovim's own inline completion.
local config = require("dflash.config").get()
local native = require("dflash.native")

---@type vim.lsp.Config
return {
  cmd = config.cmd,
  cmd_cwd = vim.fn.stdpath("state"),
  root_markers = { ".git", ".hg", ".jj" },
  init_options = vim.tbl_extend("force", { surface = "stream", status = true }, config.server),
  on_init = native.on_init,
  handlers = native.handlers,
}
