"""What is posted where: the gate, forges, and reports in other formats."""
