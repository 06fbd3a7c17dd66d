-- The first word or line of a text, as somebody accepts it who does not want all of it.
local M = {}

--- Up to the end of the first word, with the blanks before it. Where the line ends, the next one's first word.
---@param text string not empty, lines end with \n
---@return string
function M.word(text)
  local blanks = text:match("^%s*")
  local rest = text:sub(#blanks + 1)
  -- A word is what 'iskeyword' says; all else that is no blank goes in one piece with its likes.
  local length = vim.fn.matchend(rest, [[\v^%(\k+|%(\k@!\S)+)]])
  return blanks .. rest:sub(1, math.max(length, 0))
end

--- Up to the end of the line. At its end, the next one; blank lines before it come along.
---@param text string not empty, lines end with \n
---@return string
function M.line(text)
  local ends = text:match("^[ \t\n]*\n") or ""
  return ends .. text:sub(#ends + 1):match("^[^\n]*")
end

return M
