<?php
// POST /contact: checks the form and thanks the sender, or shows what is wrong
require_once __DIR__ . '/_page.php';

function handler(array $event): array
{
    parse_str($event['body'] ?? '', $values);
    $values = array_map(fn ($value) => is_string($value) ? trim($value) : '', $values);
    $errors = [];
    if (($values['name'] ?? '') === '') {
        $errors[] = 'Please tell your name.';
    }
    if (strlen($values['message'] ?? '') < 10) {
        $errors[] = 'Please write at least ten characters.';
    }
    if ($errors !== []) {
        return html(422, page('Contact', form($values, $errors)));
    }
    return html(200, page('Thank you', '<p>' . escape($values['name']) . ', your message arrived.</p>'));
}
