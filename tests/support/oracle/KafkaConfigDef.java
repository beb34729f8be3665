import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigValue;

/** What Kafka's ConfigDef makes of a text, for a type and a validator: one JSON object a line, in and out. */
public final class KafkaConfigDef {
    private static ConfigDef.Validator validator(String name) {
        switch (name) {
            case "between": return ConfigDef.Range.between(1, 10);
            case "least": return ConfigDef.Range.atLeast(0);
            case "one": return ConfigDef.ValidString.in("a", "b c");
            case "nonempty": return new ConfigDef.NonEmptyString();
            case "name": return ConfigDef.NonEmptyStringWithoutControlChars.nonEmptyStringWithoutControlChars();
            default: return null;
        }
    }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        json.getFactory().configure(JsonGenerator.Feature.ESCAPE_NON_ASCII, true);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode asked = json.readTree(line);
            ConfigDef.Type type = ConfigDef.Type.valueOf(asked.get("type").asText());
            ConfigDef definition = new ConfigDef().define("key", type, ConfigDef.NO_DEFAULT_VALUE,
                validator(asked.get("validator").asText()), ConfigDef.Importance.LOW, "");
            Map<String, String> texts = new HashMap<>();
            if (asked.has("text")) {
                texts.put("key", asked.get("text").isNull() ? null : asked.get("text").asText());
            }
            ConfigValue found = definition.validate(texts).get(0);
            ObjectNode answer = json.createObjectNode();
            answer.put("value", ConfigDef.convertToString(found.value(), type));
            found.errorMessages().forEach(answer.putArray("errors")::add);
            out.println(json.writeValueAsString(answer));
        }
        out.flush();
    }
}
