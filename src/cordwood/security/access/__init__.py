"""Who may do what with which resource: access rules, and the decisions by them."""
