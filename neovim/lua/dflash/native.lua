-- Growth for Neovim's own inline completion (0.12), which knows neither streams nor a cancel at a key stroke.
--
-- Its requests go out as `dflash/inlineCompletion`, and its handler is called again for each growth. What it would show
-- too late, or shorter than it is shown already, is kept from it. Nor does it move what it shows as one types along: until
-- it asks again, 200 ms later, it would accept the text where it was asked for, beside what was typed of it since.
local M = {}

local STANDARD, STREAM = "textDocument/inlineCompletion", "dflash/inlineCompletion"

---@type table<string, fun(value: table)> by partial result token
local growing = {}

---@return string where the cursor is, in which text
local function here()
  local buf, cursor = vim.api.nvim_get_current_buf(), vim.api.nvim_win_get_cursor(0)
  return ("%d %d %d %d"):format(buf, vim.api.nvim_buf_get_changedtick(buf), cursor[1], cursor[2])
end

--- Neovim splits at \n alone; the \r of a file with such line ends would be inserted.
---@param result table
---@return table
local function with_plain_ends(result)
  for _, item in ipairs(result.items or result) do
    item.insertText = item.insertText:gsub("\r\n?", "\n")
  end
  return result
end

---@class dflash.NativeShown What Neovim shows of us, and where: row is 1-based, column a byte.
---@field buf integer
---@field row integer
---@field column integer
---@field text string
---@field item table as the server sent it

---@param item table
---@return dflash.NativeShown
local function shown_here(item)
  local row, column = unpack(vim.api.nvim_win_get_cursor(0))
  local buf = vim.api.nvim_get_current_buf()
  return { buf = buf, row = row, column = column, text = item.insertText, item = item }
end

--- What is left of the text that is shown on the cursor's line, if it was typed along.
---@param shown dflash.NativeShown?
---@return string
local function left_of(shown)
  local row, column = unpack(vim.api.nvim_win_get_cursor(0))
  if not shown or shown.buf ~= vim.api.nvim_get_current_buf() or shown.row ~= row or shown.column > column then
    return ""
  end
  local typed = vim.api.nvim_get_current_line():sub(shown.column + 1, column)
  return vim.startswith(shown.text, typed) and shown.text:sub(#typed + 1) or ""
end

--- The item as it is where the cursor is now, with the text that is left of it.
---@param client vim.lsp.Client
---@param item table
---@param left string
---@return table
local function moved(client, item, left)
  local row, column = unpack(vim.api.nvim_win_get_cursor(0))
  local character = vim.str_utfindex(vim.api.nvim_get_current_line(), client.offset_encoding, column)
  local width = item.range["end"].character - item.range.start.character
  local range = {
    start = { line = row - 1, character = character },
    ["end"] = { line = row - 1, character = character + width },
  }
  return vim.tbl_extend("force", item, { insertText = left, range = range })
end

--- For `on_init` of a client whose server was given `surface = "stream"`.
---@param client vim.lsp.Client
function M.on_init(client)
  client.server_capabilities.inlineCompletionProvider = true
  local request = client.request
  local running ---@type { id: integer, token: string }?
  local shown ---@type dflash.NativeShown?
  local tell ---@type fun(items: table[])? what Neovim shows from now on

  local function cancel()
    if running then
      growing[running.token] = nil
      client:cancel_request(running.id)
      running = nil
    end
  end

  --- A key: what runs is for a text that is no more, what is shown goes along with it or away.
  local function typed()
    cancel()
    if shown and tell then
      local left = left_of(shown)
      local items = left ~= "" and { moved(client, shown.item, left) } or {}
      shown = items[1] and shown_here(items[1])
      tell(items)
    end
  end

  client.request = function(self, method, params, handler, buf)
    if method ~= STANDARD then
      return request(self, method, params, handler, buf)
    end
    cancel()
    local asked, token = here(), ("dflash-native-%d"):format(vim.uv.hrtime())
    local context = { client_id = client.id, bufnr = buf, method = STANDARD, params = params }
    tell = function(items)
      handler(nil, { items = items }, context)
    end

    local function show(result, whole)
      local item = (result.items or result)[1]
      if asked ~= here() or not item then
        if whole and asked == here() then
          shown = nil
          handler(nil, { items = {} }, context)
        end
        return
      end
      local left = left_of(shown)
      with_plain_ends(result)
      if not whole and #left >= #item.insertText and vim.startswith(left, item.insertText) then
        return
      end
      shown = shown_here(item)
      handler(nil, result, context)
    end

    growing[token] = function(value)
      show(value, false)
    end
    local params_with_token = vim.tbl_extend("force", params, { partialResultToken = token })
    local sent, id = request(self, STREAM, params_with_token, function(error, result)
      growing[token] = nil
      running = running and running.token ~= token and running or nil
      if not error then
        show(result or {}, true)
      end
    end, buf)
    running = sent and { id = id, token = token } or nil
    return sent, id
  end

  local group = vim.api.nvim_create_augroup("dflash.native", {})
  vim.api.nvim_create_autocmd({ "TextChangedI", "TextChangedP" }, { group = group, callback = typed })
  vim.api.nvim_create_autocmd("InsertLeave", {
    group = group,
    callback = function()
      cancel()
      shown = nil
    end,
  })
end

M.handlers = {
  ["$/progress"] = function(error, params, context)
    local grow = growing[params.token]
    if grow then
      grow(params.value)
    else
      return vim.lsp.handlers["$/progress"](error, params, context)
    end
  end,
  ["dflash/status"] = function(_, params)
    local status = require("dflash.status")
    status.known.engine = params
    status.changed()
  end,
}

return M
