WITH lists AS (
    SELECT mail_conn_id, team_name, list_name, COUNT(*) AS contacts
    FROM mail_contacts
    GROUP BY mail_conn_id, team_name, list_name
),
several AS (
    SELECT mail_conn_id, team_name, id
    FROM mail_contacts
    GROUP BY mail_conn_id, team_name, id
    HAVING COUNT(*) > 1
),
members AS (
    SELECT mail_contacts.mail_conn_id, mail_contacts.team_name, mail_contacts.list_name, mail_contacts.id
    FROM several
    JOIN mail_contacts
        ON mail_contacts.mail_conn_id = several.mail_conn_id
        AND mail_contacts.team_name = several.team_name
        AND mail_contacts.id = several.id
),
pairs AS (
    SELECT a.mail_conn_id, a.team_name, a.list_name AS one_list, b.list_name AS other_list, COUNT(*) AS in_both_lists
    FROM members AS a
    JOIN members AS b
        ON b.mail_conn_id = a.mail_conn_id
        AND b.team_name = a.team_name
        AND b.id = a.id
        AND b.list_name > a.list_name
    GROUP BY a.mail_conn_id, a.team_name, a.list_name, b.list_name
)
SELECT
    pairs.mail_conn_id,
    pairs.team_name,
    pairs.one_list,
    pairs.other_list,
    pairs.in_both_lists,
    ROUND(100.0 * pairs.in_both_lists / one.contacts, 2) AS percent_of_one,
    ROUND(100.0 * pairs.in_both_lists / other.contacts, 2) AS percent_of_other
FROM pairs
JOIN lists AS one
    ON one.mail_conn_id = pairs.mail_conn_id
    AND one.team_name = pairs.team_name
    AND one.list_name = pairs.one_list
JOIN lists AS other
    ON other.mail_conn_id = pairs.mail_conn_id
    AND other.team_name = pairs.team_name
    AND other.list_name = pairs.other_list
ORDER BY in_both_lists DESC, pairs.one_list, pairs.other_list
