<?php

function page(string $title, string $content): string
{
    return "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>" . escape($title) . "</title>"
        . "<body><h1>" . escape($title) . "</h1>$content</body></html>";
}

function escape(string $text): string
{
    return htmlspecialchars($text, ENT_QUOTES | ENT_SUBSTITUTE, 'UTF-8');
}

function form(array $values = [], array $errors = []): string
{
    $html = '';
    foreach ($errors as $error) {
        $html .= '<p class="error">' . escape($error) . '</p>';
    }
    $name = escape($values['name'] ?? '');
    $message = escape($values['message'] ?? '');
    return $html . '<form method="post">'
        . "<label>Name <input name=\"name\" value=\"$name\"></label>"
        . "<label>Message <textarea name=\"message\">$message</textarea></label>"
        . '<button>Send</button></form>';
}

function html(int $status, string $body): array
{
    return ['status' => $status, 'headers' => ['Content-Type' => 'text/html; charset=utf-8'], 'body' => $body];
}
