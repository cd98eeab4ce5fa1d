WITH lists AS (
    SELECT mail_conn_id, team, list_name, COUNT(*) AS contacts
    FROM mail_contacts
    GROUP BY mail_conn_id, team, list_name
),
pairs AS (
    SELECT
        one.mail_conn_id,
        one.team,
        one.list_name AS one_list,
        other.list_name AS other_list,
        one.contacts AS in_one,
        other.contacts AS in_other
    FROM lists AS one
    JOIN lists AS other
        ON other.mail_conn_id = one.mail_conn_id
        AND other.team = one.team
        AND other.list_name > one.list_name
)
SELECT
    pairs.mail_conn_id,
    pairs.team,
    pairs.one_list,
    pairs.other_list,
    COUNT(*) AS in_both_lists,
    ROUND(100.0 * COUNT(*) / pairs.in_one, 2) AS percent_of_one,
    ROUND(100.0 * COUNT(*) / pairs.in_other, 2) AS percent_of_other
FROM pairs
JOIN mail_contacts AS a
    ON a.mail_conn_id = pairs.mail_conn_id
    AND a.team = pairs.team
    AND a.list_name = pairs.one_list
JOIN mail_contacts AS b
    ON b.mail_conn_id = pairs.mail_conn_id
    AND b.team = pairs.team
    AND b.list_name = pairs.other_list
    AND b.id = a.id
GROUP BY pairs.mail_conn_id, pairs.team, pairs.one_list, pairs.other_list, pairs.in_one, pairs.in_other
ORDER BY in_both_lists DESC, pairs.one_list, pairs.other_list
