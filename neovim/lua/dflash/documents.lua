-- Which buffers the server knows, and under which URI.
--
-- Neovim's own client keeps a buffer and the server in step, but calls every buffer without a name `file://`: two of
-- them would be one document. Such a buffer is told here, as a whole, before each request, under a URI of its own.
local config = require("dflash.config")
local server = require("dflash.server")

local M = {}

---@type table<integer, { uri: string, tick: integer, client: integer }> what was told of buffers without a name
local untitled = {}

---@param buf integer
---@return boolean
local function has_name(buf)
  return vim.api.nvim_buf_get_name(buf) ~= ""
end

--- Whether completions may be offered in a buffer at all.
---@param buf integer
---@return boolean
function M.is_eligible(buf)
  if not vim.api.nvim_buf_is_loaded(buf) or vim.bo[buf].buftype ~= "" or not vim.bo[buf].modifiable then
    return false
  end
  return config.get().filetypes[vim.bo[buf].filetype] ~= false
end

--- Tell the server of a buffer from now on. With another filetype than before it is told anew.
---@param buf integer
function M.attach(buf)
  local client = server.client()
  if not client or not M.is_eligible(buf) or not has_name(buf) then
    return
  end
  M.forget(buf) -- it may have got its name just now
  local language = vim.bo[buf].filetype
  if vim.lsp.buf_is_attached(buf, client.id) then
    if vim.b[buf].dflash_language == language then
      return
    end
    vim.lsp.buf_detach_client(buf, client.id)
  end
  vim.lsp.buf_attach_client(buf, client.id)
  vim.b[buf].dflash_language = language
end

--- The server need no longer know a buffer without a name.
---@param buf integer
function M.forget(buf)
  local told = untitled[buf]
  untitled[buf] = nil
  local client = server.client()
  if told and client and client.id == told.client then
    server.notify("textDocument/didClose", { textDocument = { uri = told.uri } })
  end
end

---@param buf integer
---@return string
local function text_of(buf)
  local ends = ({ dos = "\r\n", mac = "\r" })[vim.bo[buf].fileformat] or "\n"
  return table.concat(vim.api.nvim_buf_get_lines(buf, 0, -1, true), ends) .. ends
end

---@param buf integer without a name
---@param client integer
---@return string uri
local function tell_untitled(buf, client)
  local tick = vim.api.nvim_buf_get_changedtick(buf)
  local told = untitled[buf]
  if told and told.client ~= client then
    told = nil
  end
  if not told then
    local uri = ("untitled:Untitled-%d"):format(buf)
    local document = { uri = uri, languageId = vim.bo[buf].filetype, version = tick, text = text_of(buf) }
    server.notify("textDocument/didOpen", { textDocument = document })
    untitled[buf] = { uri = uri, tick = tick, client = client }
    return uri
  end
  if told.tick ~= tick then
    server.notify("textDocument/didChange", {
      textDocument = { uri = told.uri, version = tick },
      contentChanges = { { text = text_of(buf) } },
    })
    told.tick = tick
  end
  return told.uri
end

--- The URI under which the server knows the buffer as it is now; nil when it does not.
---@param buf integer
---@return string?
function M.uri(buf)
  local client = server.client()
  if not client or not client.initialized then
    return nil
  elseif has_name(buf) then
    M.attach(buf)
    return vim.lsp.buf_is_attached(buf, client.id) and vim.uri_from_bufnr(buf) or nil
  end
  return tell_untitled(buf, client.id)
end

return M
